//! What must hold after each step, all of it from counters: those of the limiter, those of the next hook
//! behind it, and the device's own.

use std::{fs, thread, time::Instant};

use crate::{
    arrivals,
    host::Host,
    ledger::{Ledger, unjudged},
    party::{BURST, Party, RATE, Role, SHARED, SLOW},
    site::Site,
    traffic::Traffic,
};

pub(crate) struct Audit {
    /// Before the first packet, so that every bucket was full.
    began: Instant,
    /// Frames that no program saw, all from before the first start.
    unjudged: u64,
    ledger: Ledger,
    arrived: Vec<u64>,
    parties: Vec<Party>,
}

// === impl Audit ===

impl Audit {
    pub(crate) fn begin(site: &Site, traffic: &Traffic) -> Self {
        let began = Instant::now();
        let Traffic { parties, .. } = traffic;
        let unjudged = unjudged(&site.host);
        let ledger = Ledger::read(&site.host);
        Self { began, unjudged, ledger, arrived: vec![0; parties.len()], parties: parties.clone() }
    }

    /// Everybody rests, and a daemon runs. `listed`: those who are denied at times were all the while.
    pub(crate) fn check(&mut self, site: &Site, traffic: &Traffic, listed: bool) {
        let host = &site.host;
        assert_eq!(host.interfaces(), [("eth0".to_owned(), "native".to_owned(), true)]);
        assert_eq!(unjudged(host), self.unjudged, "no frame passed beside the program");
        let ledger = Ledger::read(host);
        ledger.follows(&self.ledger);
        assert_eq!(ledger.event("live_evicted"), 0, "the table has room");
        let arrived = arrivals::read(host, &self.parties);

        self.check_bounds(&arrived, listed);
        // What the limiter says that it passed is what arrived.
        for role in [Role::Honest, Role::Fast, Role::Slow, Role::Shared] {
            let rule = role.rule();
            let all: u64 = self.of(&arrived, |role| role.rule() == rule).sum();
            assert_eq!(ledger.packets(rule).0, all, "rule {rule}");
        }
        assert_eq!(ledger.packets(Role::Honest.rule()).1, 0, "an honest packet was shed");
        let questions: u64 = self.of(&arrived, |role| role == Role::Honest).sum();
        let (asked, answered) = traffic.asked.read();
        let lost = dropped(host);
        assert!(questions + lost >= asked, "{asked} asked, {questions} arrived, {lost} lost on the wire");
        assert!(answered + lost >= questions, "{questions} arrived, {answered} answered, {lost} lost");

        for rule in ["fast", "slow", "shared"] {
            assert!(ledger.packets(rule).1 > self.ledger.packets(rule).1, "nothing of {rule} was shed");
        }
        (self.ledger, self.arrived) = (ledger, arrived);
    }

    /// No source got more than its limit admits since the beginning.
    fn check_bounds(&self, arrived: &[u64], listed: bool) {
        let processors = thread::available_parallelism().map_or(1, usize::from) as u64;
        let elapsed = self.began.elapsed().as_nanos();
        let refilled = u64::try_from(u128::from(RATE) * elapsed / 1_000_000_000).expect("a short run");
        // A race for a bucket may pass one packet a processor more.
        let most = BURST + refilled + processors;
        for ((party, &arrived), &before) in self.parties.iter().zip(arrived).zip(&self.arrived) {
            let bound = match party.role {
                Role::Honest => continue,
                Role::Denied | Role::Blocked => 0,
                Role::Listed if listed => before,
                Role::Fast | Role::Listed => most,
                Role::Slow => SLOW,
                Role::Shared => SHARED,
            };
            assert!(arrived <= bound, "{arrived} of {party:?} arrived, at most {bound} may");
        }
        let shared: u64 = self.of(arrived, |role| role == Role::Shared).sum();
        assert!(shared <= SHARED, "{shared} arrived by a bucket of {SHARED}");
    }

    /// Everybody who may got something, so that the bounds above say something.
    pub(crate) fn conclude(&self) {
        for (party, &arrived) in self.parties.iter().zip(&self.arrived) {
            match party.role {
                Role::Slow => assert_eq!(arrived, SLOW, "{party:?}"),
                Role::Fast => assert!(arrived >= BURST, "{arrived} of {party:?}"),
                Role::Honest | Role::Listed => assert!(arrived > 0, "nothing of {party:?}"),
                Role::Shared | Role::Denied | Role::Blocked => {}
            }
        }
        assert_eq!(self.of(&self.arrived, |role| role == Role::Shared).sum::<u64>(), SHARED);
    }

    /// What arrived of the parties of some roles.
    fn of<'a>(
        &'a self,
        arrived: &'a [u64],
        is_asked: impl Fn(Role) -> bool + 'a,
    ) -> impl Iterator<Item = u64> + 'a {
        let parties = self.parties.iter().zip(arrived);
        parties.filter(move |(party, _)| is_asked(party.role)).map(|(_, &arrived)| arrived)
    }
}

/// Frames that either end of the wire had no room for.
fn dropped(host: &Host) -> u64 {
    [&host.lab.client, &host.lab.server]
        .map(|namespace| {
            // `/proc/net` would show the namespace of the process, not that of the thread.
            let table = namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev")).expect("a table");
            let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:")).expect("the device");
            // Eight columns of what was received come first; the fourth of what was sent are the drops.
            line.split_whitespace()
                .nth(8 + 3)
                .and_then(|number| number.parse::<u64>().ok())
                .expect("a number")
        })
        .iter()
        .sum()
}
