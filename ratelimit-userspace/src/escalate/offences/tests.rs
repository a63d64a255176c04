use std::{collections::HashMap, time::Duration};

use ipnet::IpNet;
use proptest::prelude::*;

use super::Offences;
use crate::{config::http::Escalate, escalate::fixture::terms};

const MINUTE: u64 = 60_000_000_000;
const START: u64 = 1_800_000_000_000_000_000;

fn client(number: u32) -> IpNet {
    IpNet::from(std::net::IpAddr::from(number.to_be_bytes()))
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

/// Blocks for 10 minutes, then 20, 40 and at most 60.
fn doubling() -> Escalate {
    Escalate { block: minutes(10), factor: 2, max: minutes(60), ..terms() }
}

fn sentences(offences: &mut Offences, terms: &Escalate, times: &[u64]) -> Vec<Option<(u32, u64)>> {
    let told = |(offence, duration): (u32, Duration)| (offence, duration.as_secs() / 60);
    times.iter().map(|minute| offences.offend(client(1), terms, START + minute * MINUTE).map(told)).collect()
}

#[test]
fn each_offence_in_a_row_blocks_longer_up_to_the_longest() {
    let told = sentences(&mut Offences::new(), &doubling(), &[0, 10, 30, 70, 130]);
    assert_eq!(told, [Some((1, 10)), Some((2, 20)), Some((3, 40)), Some((4, 60)), Some((5, 60))]);
}

#[test]
fn what_was_under_way_does_not_block_longer() {
    let told = sentences(&mut Offences::new(), &doubling(), &[0, 1, 9, 10]);
    assert_eq!(told, [Some((1, 10)), None, None, Some((2, 20))]);
}

#[test]
fn a_block_weighs_for_as_long_again_as_it_lasted() {
    // The second block is over at 30, weighs until 50, and the first until 60.
    for (third, sentence) in [(49, (3, 40)), (50, (2, 20)), (59, (2, 20)), (60, (1, 10))] {
        let told = sentences(&mut Offences::new(), &doubling(), &[0, 10, third]);
        assert_eq!(told[2], Some(sentence), "{third}");
    }
}

#[test]
fn another_rule_goes_on_from_the_same_level() {
    let mut offences = Offences::new();
    let strict = Escalate { block: minutes(60), factor: 3, max: minutes(600), ..terms() };
    sentences(&mut offences, &doubling(), &[0]);
    assert_eq!(sentences(&mut offences, &strict, &[10]), [Some((2, 180))]);
}

#[test]
fn a_forgotten_client_begins_anew() {
    let mut offences = Offences::new();
    sentences(&mut offences, &doubling(), &[0, 10]);
    offences.forget(client(1));
    assert!(!offences.knows(&client(1)));
    assert_eq!(sentences(&mut offences, &doubling(), &[11]), [Some((1, 10))]);
}

#[test]
fn a_spray_of_first_offenders_does_not_displace_a_repeated_one() {
    let mut offences = Offences::new();
    sentences(&mut offences, &doubling(), &[0, 10]);
    for sprayed in 1000..400_000 {
        offences.offend(client(sprayed), &doubling(), START + 10 * MINUTE);
    }
    assert_eq!(sentences(&mut offences, &doubling(), &[30]), [Some((3, 40))]);
}

/// Offences that weigh, as a stack of the times that each weighs for from its end on.
#[derive(Default)]
struct Model {
    until: u64,
    weighs: Vec<u64>,
}

impl Model {
    fn offend(&mut self, terms: &Escalate, now: u64) -> Option<u64> {
        if now < self.until {
            return None;
        }
        let mut quiet = now - self.until;
        while let Some(last) = self.weighs.pop_if(|weighs| *weighs <= quiet) {
            quiet -= last;
        }
        let [block, max] = [terms.block, terms.max].map(|time| u64::try_from(time.as_nanos()).unwrap());
        let length = |offence: usize| {
            (0..offence).fold(block, |length, _| length.saturating_mul(terms.factor.into())).min(max)
        };
        self.weighs = (0..=self.weighs.len()).map(length).collect();
        self.until = now + self.weighs.last()?;
        self.weighs.last().copied()
    }
}

proptest! {
    #[test]
    fn blocks_are_as_long_as_in_a_plain_model(
        block in 1..100_u64,
        longer in 0..1000_u64,
        factor in 1..5_u32,
        steps in prop::collection::vec((0..3_u32, 0..300_u64), 1..60),
    ) {
        let terms = Escalate { block: minutes(block), max: minutes(block + longer), factor, ..terms() };
        let mut offences = Offences::new();
        let mut models: HashMap<u32, Model> = HashMap::new();
        let mut now = START;
        for (number, step) in steps {
            now += step * MINUTE;
            let told = offences.offend(client(number), &terms, now);
            let modelled = models.entry(number).or_default().offend(&terms, now);
            prop_assert_eq!(told.map(|(_, duration)| duration), modelled.map(Duration::from_nanos));
        }
    }
}
