use super::*;
use crate::{
    config::http::{Algorithm, Rule as Policy},
    http::{
        algorithm::State,
        ask::{Decision, Descriptor, Entry, Standing, Whose},
        rules::Rule,
        serve::fixture::{self, SECOND, limit, policy, rule},
    },
};

const MINUTE: u64 = 60 * SECOND;

/// A start at which every window of a minute begins.
const START: u64 = 1_800_000_000 * SECOND;

fn at(seconds: u64) -> Now {
    Now::at(START + seconds * SECOND)
}

fn id(bits: u128) -> Id {
    Id::from_bits(bits)
}

fn ask(hits: i64) -> Ask<'static> {
    let entry = Entry { key: "user".into(), value: "u1".into() };
    Ask {
        domain: "api".into(),
        descriptors: vec![Descriptor { entries: vec![entry], hits, limit: None }],
        peek: false,
        whose: Whose::Described,
    }
}

/// One counter, decided as a limiter would, and the reservations of it.
struct Bench {
    meter: Arc<Meter>,
    rule: Arc<Rule>,
    state: Option<State>,
    reservations: Reservations,
}

impl Bench {
    fn new(policy: Policy) -> Self {
        let meter = Arc::new(Meter::new(policy.limit.as_deref().unwrap().clone()));
        Self { meter, rule: rule("r", policy), state: None, reservations: Reservations::default() }
    }

    fn window(units: u64, algorithm: Algorithm) -> Self {
        Self::new(policy(limit(units, 60, algorithm)))
    }

    fn cost(&self, hits: i64) -> i64 {
        hits * i64::try_from(self.rule.policy.cost).unwrap()
    }

    /// Whether the reservation passed.
    fn reserve(&mut self, name: u128, hits: u32, ttl: u64, now: Now) -> bool {
        let cost = self.cost(hits.into());
        let crate::http::algorithm::Outcome::Admit { .. } = self.meter.decide(self.state.as_ref(), now, cost)
        else {
            return false;
        };
        self.meter.charge(&mut self.state, now, cost);
        let status = Status {
            rule: Some(Arc::clone(&self.rule)),
            allowed: true,
            standing: Some(self.standing(now)),
            retry_after: None,
            soft_over: false,
            shadow_denied: false,
            meter: Some(Arc::clone(&self.meter)),
            identity: None,
        };
        let answer = fixture::answer(Decision::Allow, None, vec![status]);
        let ask = ask(hits.into());
        self.reservations.room(&ask).unwrap();
        self.reservations.insert(id(name), ask, hits.into(), &answer, ttl * SECOND, now);
        true
    }

    fn standing(&self, now: Now) -> Standing {
        self.meter.standing(self.state.as_ref(), now)
    }

    fn remaining(&self, now: Now) -> u64 {
        self.standing(now).remaining
    }

    fn correct(&mut self, ask: &Ask<'_>, now: Now) {
        let cost = self.cost(ask.descriptors[0].hits);
        self.meter.charge(&mut self.state, now, cost);
    }

    fn commit(&mut self, name: u128, hits: u64, now: Now) {
        let settlement = self.reservations.commit(id(name), hits, now).unwrap();
        self.correct(&settlement.correction.unwrap(), now);
    }

    fn expire(&mut self, now: Now) {
        for ask in self.reservations.expire(now) {
            self.correct(&ask, now);
        }
    }
}

#[test]
fn a_commit_frees_what_was_not_used_and_expiry_frees_all() {
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { round_up: false },
        Algorithm::SlidingLog,
        Algorithm::Segments { segments: 6 },
        Algorithm::TokenBucket { burst: 100, interval: true },
    ] {
        let mut bench = Bench::window(100, algorithm);
        assert!(bench.reserve(1, 40, 30, at(0)), "{algorithm:?}");
        assert!(bench.reserve(2, 40, 30, at(0)), "{algorithm:?}");
        assert!(!bench.reserve(3, 40, 30, at(0)), "{algorithm:?}");
        bench.commit(1, 10, at(5));
        assert_eq!(bench.remaining(at(5)), 50, "{algorithm:?}");
        bench.expire(at(30));
        assert_eq!(bench.remaining(at(30)), 90, "{algorithm:?}");
    }
}

#[test]
fn a_bucket_stands_as_if_the_real_cost_had_been_charged_at_once() {
    // One unit a second.
    let mut bench = Bench::window(60, Algorithm::TokenBucket { burst: 100, interval: false });
    assert!(bench.reserve(1, 40, 60, at(0)));
    bench.commit(1, 10, at(5));
    assert_eq!(bench.remaining(at(5)), 95, "10 used, 5 refilled");
    // 40 seconds later all of a reservation has drained by itself: nothing is given back twice.
    assert!(bench.reserve(2, 40, 60, at(100)));
    bench.meter.charge(&mut bench.state, at(141), 50);
    bench.commit(2, 10, at(141));
    assert_eq!(bench.remaining(at(141)), 50);
}

#[test]
fn a_bucket_that_owed_before_gives_back_all() {
    let mut bench = Bench::window(60, Algorithm::TokenBucket { burst: 100, interval: false });
    bench.meter.charge(&mut bench.state, at(0), 50);
    assert!(bench.reserve(1, 40, 60, at(0)));
    bench.commit(1, 10, at(30));
    assert_eq!(bench.remaining(at(30)), 70, "60 used, 30 refilled");
}

#[test]
fn what_left_with_its_window_is_not_given_back_from_the_next() {
    let mut bench = Bench::window(100, Algorithm::FixedWindow);
    assert!(bench.reserve(1, 40, 60, at(50)));
    bench.meter.charge(&mut bench.state, at(61), 70);
    bench.commit(1, 10, at(65));
    assert_eq!(bench.remaining(at(65)), 30);
}

#[test]
fn in_the_next_window_a_sliding_one_gives_back_no_more_than_it_still_weighs() {
    let mut bench = Bench::window(100, Algorithm::SlidingWindow { round_up: false });
    assert!(bench.reserve(1, 40, 60, at(50)));
    bench.meter.charge(&mut bench.state, at(61), 50);
    let before = bench.remaining(at(90));
    bench.commit(1, 0, at(90));
    assert_eq!(bench.remaining(at(90)) - before, 20, "40 in the window before weigh 20 in its middle");
}

#[test]
fn a_commit_above_the_reservation_charges_the_rest() {
    let mut bench = Bench::window(100, Algorithm::FixedWindow);
    assert!(bench.reserve(1, 40, 60, at(0)));
    bench.commit(1, 70, at(1));
    assert_eq!(bench.remaining(at(1)), 30);
    assert!(bench.reserve(2, 30, 60, at(2)));
    bench.commit(2, 1000, at(3));
    assert_eq!(bench.remaining(at(3)), 0, "without denying, up to the limit");
}

#[test]
fn hits_that_cost_more_than_a_unit_are_given_back_as_hits() {
    let cost = Policy { cost: 5, ..policy(limit(100, 60, Algorithm::FixedWindow)) };
    let mut bench = Bench::new(cost);
    assert!(bench.reserve(1, 10, 60, at(0)));
    assert_eq!(bench.remaining(at(0)), 50);
    bench.commit(1, 4, at(1));
    assert_eq!(bench.remaining(at(1)), 80);
}

#[test]
fn the_same_commit_again_changes_nothing() {
    let mut bench = Bench::window(100, Algorithm::FixedWindow);
    assert!(bench.reserve(1, 40, 60, at(0)));
    bench.commit(1, 10, at(1));
    let again = bench.reservations.commit(id(1), 10, at(2)).unwrap();
    assert_eq!(again, Settlement { reserved: 40, correction: None });
    assert_eq!(
        bench.reservations.commit(id(1), 11, at(3)),
        Err(CommitError::Conflict { committed: 10 }),
        "and another one is refused"
    );
    bench.expire(at(70));
    assert_eq!(bench.remaining(at(59)), 90, "a settled one is not given back when it expires");
}

#[test]
fn a_commit_is_recognised_for_a_minute_even_if_it_came_late() {
    let mut bench = Bench::window(100, Algorithm::FixedWindow);
    assert!(bench.reserve(1, 40, 10, at(0)));
    bench.commit(1, 10, at(9));
    bench.expire(at(68));
    assert!(bench.reservations.commit(id(1), 10, at(68)).is_ok());
    bench.expire(at(69));
    assert_eq!(bench.reservations.commit(id(1), 10, at(69)), Err(CommitError::Unknown));
    assert!(bench.reservations.by_id.is_empty() && bench.reservations.deadlines.is_empty());
    assert_eq!(bench.reservations.bytes, 0);
}

#[test]
fn an_expired_or_unknown_reservation_cannot_be_committed() {
    let mut bench = Bench::window(100, Algorithm::FixedWindow);
    assert!(bench.reserve(1, 40, 10, at(0)));
    assert_eq!(bench.reservations.commit(id(2), 10, at(0)), Err(CommitError::Unknown));
    let late = bench.reservations.commit(id(1), 10, at(10));
    assert_eq!(late, Err(CommitError::Unknown), "not even if nobody has collected it yet");
    assert_eq!(bench.reservations.expire(at(10)).len(), 1);
    assert_eq!(bench.reservations.expire(at(10)), []);
}

#[test]
fn the_next_to_expire_is_known() {
    let mut bench = Bench::window(100, Algorithm::FixedWindow);
    assert_eq!(bench.reservations.next_expiry(), None);
    assert!(bench.reserve(1, 1, 50, at(0)));
    assert!(bench.reserve(2, 1, 20, at(0)));
    assert_eq!(bench.reservations.next_expiry(), Some(at(20).steady));
    bench.expire(at(20));
    assert_eq!(bench.reservations.next_expiry(), Some(at(50).steady));
}

#[test]
fn descriptors_that_no_limit_counts_are_left_alone() {
    let mut reservations = Reservations::default();
    let mut two = ask(5);
    two.descriptors.push(two.descriptors[0].clone());
    let rule = rule("r", policy(limit(10, 60, Algorithm::FixedWindow)));
    let uncounted = Status { rule: None, standing: None, meter: None, ..fixture::status(&rule, 5, 0) };
    let answer = fixture::answer(Decision::Allow, None, vec![fixture::status(&rule, 5, 0), uncounted]);
    reservations.insert(id(1), two, 5, &answer, MINUTE, at(0));
    let correction = reservations.commit(id(1), 2, at(1)).unwrap().correction.unwrap();
    assert_eq!(correction.descriptors.iter().map(|descriptor| descriptor.hits).collect::<Vec<_>>(), [-3, 0]);
}

#[test]
fn there_are_only_so_many_and_only_so_many_bytes() {
    let rule = rule("r", policy(limit(10, 60, Algorithm::FixedWindow)));
    let answer = fixture::answer(Decision::Allow, None, vec![fixture::status(&rule, 5, 0)]);
    let mut many = Reservations::default();
    for n in 0..MAX_RESERVATIONS {
        many.room(&ask(1)).unwrap();
        many.insert(id(n as u128), ask(1), 1, &answer, MINUTE, at(0));
    }
    assert_eq!(many.room(&ask(1)), Err(Full));
    assert_eq!(many.expire(at(60)).len(), MAX_RESERVATIONS);
    many.room(&ask(1)).unwrap();

    let mut large = ask(1);
    large.descriptors[0].entries[0].value = "x".repeat(MAX_BYTES / 4).into();
    let mut few = Reservations::default();
    for n in 0..3 {
        few.room(&large).unwrap();
        few.insert(id(n), large.clone(), 1, &answer, MINUTE, at(0));
    }
    assert_eq!(few.room(&large), Err(Full));
    few.room(&ask(1)).unwrap();
}

#[test]
fn ids_are_32_hexadecimal_digits() {
    let text = "00112233445566778899aabbccddeeff";
    assert_eq!(text.parse::<Id>().unwrap().to_string(), text);
    assert_eq!(text.to_uppercase().parse(), text.parse::<Id>());
    for text in ["", "0", "+0112233445566778899aabbccddeeff", "00112233445566778899aabbccddeefg", "é"] {
        assert_eq!(text.parse::<Id>(), Err(InvalidId), "{text}");
    }
}

#[test]
fn hostile_numbers_do_not_panic() {
    let mut bench = Bench::window(u64::MAX, Algorithm::FixedWindow);
    assert!(bench.reserve(1, u32::MAX, 60, Now::at(u64::MAX - 1)));
    let settlement = bench.reservations.commit(id(1), u64::MAX, Now::at(u64::MAX - 1)).unwrap();
    assert_eq!(settlement.correction.unwrap().descriptors[0].hits, i64::MAX);
    bench.expire(Now::at(u64::MAX));
}
