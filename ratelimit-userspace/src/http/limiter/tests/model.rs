//! The limiter against a naive one: single-threaded, with counters by name, and written after the rules'
//! words.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::http::algorithm::{Meter, Outcome, State};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const VALUES: [&str; 2] = ["1", "2"];

/// The counters of the naive limiter, each with the limit of its key.
struct Naive {
    rules: Vec<Rule>,
    meters: Vec<Meter>,
    states: HashMap<(usize, usize), Option<State>>,
}

/// A counter that a request meets: key and value by number, and what all its descriptors cost.
struct Met {
    counter: (usize, usize),
    cost: i64,
}

#[derive(Clone, Debug)]
struct Step {
    /// Time passes, in tenths of seconds, sometimes backwards.
    passes: i64,
    peek: bool,
    descriptors: Vec<(usize, usize, i64)>,
}

/// What is compared.
#[derive(Debug, PartialEq)]
struct Told {
    decision: Decision,
    rule: Option<String>,
    standing: Option<Standing>,
    retry_after: Option<u64>,
    delay: Option<u64>,
    /// Allowed, standing, refused by a shadow rule.
    statuses: Vec<(bool, Option<Standing>, bool)>,
}

// === impl Naive ===

impl Naive {
    fn new(rules: &[Rule]) -> Self {
        let meter = |rule: &Rule| Meter::new((**rule.limit.as_ref().unwrap()).clone());
        Self { rules: rules.to_vec(), meters: rules.iter().map(meter).collect(), states: HashMap::new() }
    }

    fn says(&self, met: &Met, now: Now) -> Outcome {
        let state = self.states.get(&met.counter).and_then(Option::as_ref);
        self.meters[met.counter.0].decide(state, now, met.cost)
    }

    fn standing(&self, met: &Met, now: Now) -> Standing {
        let state = self.states.get(&met.counter).and_then(Option::as_ref);
        self.meters[met.counter.0].standing(state, now)
    }

    fn tell(&mut self, step: &Step, now: Now) -> Told {
        let before = self.states.clone();
        let told = self.decide(step, now);
        if step.peek {
            self.states = before;
        }
        told
    }

    fn decide(&mut self, step: &Step, now: Now) -> Told {
        let mut all: Vec<Met> = Vec::new();
        for &(key, value, hits) in &step.descriptors {
            let cost = hits * i64::try_from(self.rules[key].cost).unwrap();
            match all.iter_mut().find(|met| met.counter == (key, value)) {
                Some(met) => met.cost += cost,
                None => all.push(Met { counter: (key, value), cost }),
            }
        }
        let rule = |met: &Met| &self.rules[met.counter.0];
        let first: Vec<Outcome> = all.iter().map(|met| self.says(met, now)).collect();
        let refuses = |outcome: &Outcome| matches!(outcome, Outcome::Refuse { .. });

        // Shadow rules never deny, quota rules if all of them do, the others if one does.
        let is_denier = |outcomes: &[Outcome], place: usize| -> bool {
            if rule(&all[place]).shadow || !refuses(&outcomes[place]) {
                return false;
            }
            let quota = |met: &Met| rule(met).quota && !rule(met).shadow;
            !quota(&all[place])
                || all.iter().zip(outcomes).all(|(met, outcome)| !quota(met) || refuses(outcome))
        };
        let denied = (0..all.len()).any(|place| is_denier(&first, place));

        // All that admit are charged if the request passes; those that count denied requests always.
        let mut charges = Vec::new();
        for (met, outcome) in all.iter().zip(&first) {
            let always = self.meters[met.counter.0].limit().count_denied;
            charges.push(always || !denied && !refuses(outcome));
        }
        for (met, charged) in all.iter().zip(&charges) {
            let meter = &self.meters[met.counter.0];
            let state = self.states.entry(met.counter).or_default();
            let ahead = state.as_ref().is_some_and(|state| meter.is_ahead(state, now));
            if *charged || ahead {
                meter.charge(state, now, if *charged { met.cost } else { 0 });
            }
        }

        let next: Vec<Outcome> = (0..all.len())
            .map(|place| if denied && charges[place] { self.says(&all[place], now) } else { first[place] })
            .collect();
        let wait = |place: usize| match next[place] {
            Outcome::Refuse { wait } => wait.map_or(u128::MAX, u128::from),
            Outcome::Admit { .. } => 0,
        };
        let rule = |place: usize| &self.rules[all[place].counter.0];
        // Quotas deny until the first does not; everything else as long as it says.
        let quota = |place: &usize| rule(*place).quota && !rule(*place).shadow;
        let longest = |outcomes: &[Outcome]| {
            let denying: Vec<usize> = (0..all.len()).filter(|place| is_denier(outcomes, *place)).collect();
            let first_quota = denying.iter().copied().filter(quota).min_by_key(|place| wait(*place));
            let counted = denying.into_iter().filter(|place| !quota(place) || Some(*place) == first_quota);
            counted.reduce(|longest, place| if wait(place) > wait(longest) { place } else { longest })
        };
        let standings: Vec<Standing> = all.iter().map(|met| self.standing(met, now)).collect();
        let shown = if denied {
            longest(&first)
        } else {
            (0..all.len())
                .filter(|place| !rule(*place).shadow)
                .min_by_key(|place| standings[*place].remaining)
        };
        let delay = first.iter().enumerate().filter(|(place, _)| !rule(*place).shadow);
        let delay = delay.map(|(_, outcome)| match outcome {
            Outcome::Admit { delay, .. } => *delay,
            Outcome::Refuse { .. } => 0,
        });
        let delay = delay.max().unwrap_or(0);
        let shadowed = (0..all.len()).any(|place| rule(place).shadow && refuses(&first[place]));
        let decision = match (denied, delay > 0, shadowed) {
            (true, ..) => Decision::Deny,
            (false, true, _) => Decision::Delay,
            (false, false, true) => Decision::Shadow,
            (false, false, false) => Decision::Allow,
        };
        let seconds = |wait: u128| (wait != u128::MAX).then(|| (wait.div_ceil(1_000_000_000)).max(1));
        let retry = if denied { seconds(longest(&next).map_or(0, wait)) } else { None };
        let status = |&(key, value, _): &(usize, usize, i64)| {
            let place = all.iter().position(|met| met.counter == (key, value)).unwrap();
            let (over, shadow) = (refuses(&first[place]), self.rules[key].shadow);
            (!over || shadow, (!shadow).then_some(standings[place]), over && shadow)
        };
        Told {
            decision,
            rule: shown.map(|place| format!("d/{}", KEYS[all[place].counter.0])),
            standing: shown.map(|place| standings[place]),
            retry_after: retry.map(|seconds| u64::try_from(seconds).unwrap()),
            delay: (decision == Decision::Delay).then_some(delay),
            statuses: step.descriptors.iter().map(status).collect(),
        }
    }
}

fn told(answer: &Answer) -> Told {
    Told {
        decision: answer.decision,
        rule: answer.rule.as_ref().map(|rule| rule.id.to_string()),
        standing: answer.standing,
        retry_after: answer.retry_after,
        delay: answer.delay,
        statuses: answer
            .statuses
            .iter()
            .map(|status| (status.allowed, status.standing, status.shadow_denied))
            .collect(),
    }
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let algorithm = prop_oneof![
        Just(Algorithm::FixedWindow),
        any::<bool>().prop_map(|round_up| Algorithm::SlidingWindow { round_up }),
        Just(Algorithm::SlidingLog),
        Just(Algorithm::Segments { segments: 4 }),
        (1..8_u64, any::<bool>()).prop_map(|(burst, interval)| Algorithm::TokenBucket { burst, interval }),
        (1..8_u64, prop::option::of(0..3 * SECOND))
            .prop_map(|(burst, max_delay)| Algorithm::LeakyBucket { burst, max_delay }),
    ];
    let numbers = (0..8_u64, 1..5_u64, algorithm, any::<bool>(), prop::bool::weighted(0.3), 0..3_u32);
    let rules = (numbers, prop::bool::weighted(0.2), prop::bool::weighted(0.3), 1..3_u64).prop_map(
        |((units, seconds, algorithm, first, count_denied, margin), shadow, quota, cost)| {
            let align = if first { Align::First } else { Align::Epoch };
            let soft_margin_permille = margin * 200;
            let limit =
                Limit { align, count_denied, soft_margin_permille, ..limit(units, seconds, algorithm) };
            Rule { shadow, quota, cost, ..rule(limit) }
        },
    );
    prop::collection::vec(rules, KEYS.len())
}

/// Steps, half of the time with some that go back in time.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    any::<bool>().prop_flat_map(|back| {
        let passes = prop_oneof![6 => Just(0), 12 => 0..25_i64, u32::from(back) => -20..0_i64];
        let descriptor = (0..KEYS.len(), 0..VALUES.len(), prop_oneof![5 => Just(1), 2 => -3..6_i64]);
        let step = (passes, prop::bool::weighted(0.1), prop::collection::vec(descriptor, 0..5));
        let step = step.prop_map(|(passes, peek, descriptors)| Step { passes, peek, descriptors });
        prop::collection::vec(step, 1..60)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn it_answers_as_a_naive_limiter_does(rules in rules(), steps in steps()) {
        let nodes = KEYS.iter().zip(&rules).map(|(key, rule)| node(key, rule.clone())).collect();
        let (limiter, mut naive) = (limiter(nodes), Naive::new(&rules));
        // What was whole and is forgotten is not there again when time runs back.
        let sweeps = steps.iter().all(|step| step.passes >= 0);
        let mut now = at(100.0);
        for step in steps {
            now = Now::at(now.steady.saturating_add_signed(step.passes * 100_000_000));
            let descriptors = step.descriptors.iter().map(|&(key, value, hits)| Descriptor {
                entries: vec![Entry { key: KEYS[key].into(), value: VALUES[value].into() }],
                hits,
                limit: None,
            });
            let ask = Ask { domain: "d".into(), descriptors: descriptors.collect(), peek: step.peek, whose: Whose::Described };
            let lean = limiter.admit(&peek(ask.clone()), now);
            let answer = limiter.decide(&ask, now);
            prop_assert_eq!(told(&answer), naive.tell(&step, now), "{:?} at {}", step, now.steady - START);
            prop_assert_eq!(lean, answer.decision);
            if sweeps && step.passes % 5 == 0 {
                limiter.sweep(now);
            }
        }
        let kept = naive.states.values().flatten().count();
        prop_assert!(limiter.stats().keys <= kept, "{} of {kept}", limiter.stats().keys);
    }
}
