//! What holds for every algorithm.

use proptest::prelude::*;

use super::{
    model::{limits, steps},
    *,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Waiting exactly as long as told is enough, and less is not; nor does waiting longer hurt.
    #[test]
    fn the_wait_is_the_least_that_helps(
        limit in limits(), start in 0_u64..5_000, steps in steps(), more in 0_u64..500,
    ) {
        let mut counter = Counter::new(limit);
        let mut now = start;
        for (wait, cost) in steps {
            now += wait;
            if let Outcome::Refuse { wait: Some(wait) } = counter.ask(now, cost) {
                let admits = |at| matches!(counter.decide(at, cost), Outcome::Admit { .. });
                let wait = if counter.meter.limit().count_denied {
                    counter.wait(now, cost).unwrap()
                } else {
                    wait
                };
                prop_assert!(admits(now + wait), "{cost} at {now} after {wait}: {counter:?}");
                prop_assert!(admits(now + wait + more), "{cost} at {now} after {wait} + {more}: {counter:?}");
                prop_assert!(wait > 0);
                prop_assert!(!admits(now + wait - 1), "{cost} at {now} before {wait}: {counter:?}");
            }
        }
    }

    /// A state that is whole says what no state says, and charging it gives the same.
    #[test]
    fn a_whole_state_is_as_good_as_none(
        limit in limits(), start in 0_u64..5_000, steps in steps(), later in 0_u64..500,
    ) {
        let mut counter = Counter::new(limit.clone());
        let fresh = Counter::new(limit);
        let mut now = start;
        for (wait, cost) in steps {
            now += wait;
            counter.ask(now, cost);
            let Some(state) = &counter.state else {
                prop_assert_eq!(counter.used(now), 0);
                continue;
            };
            let whole_at = counter.meter.whole_at(state);
            for at in [whole_at.max(now), whole_at.max(now) + later] {
                prop_assert_eq!(counter.standing(at), fresh.standing(at));
                prop_assert_eq!(counter.used(at), 0);
                for cost in [-1, 0, 1, 2, 5, 20] {
                    prop_assert_eq!(counter.decide(at, cost), fresh.decide(at, cost));
                    let (mut counter, mut fresh) = (counter.clone(), fresh.clone());
                    counter.charge(at, cost);
                    fresh.charge(at, cost);
                    prop_assert_eq!(counter.state, fresh.state);
                }
            }
            // Not sooner, except that little of a previous window may round to nothing.
            if !matches!(counter.meter.limit().algorithm, Kinds::SlidingWindow { .. }) {
                prop_assert!(counter.used(whole_at - 1) > 0, "{counter:?}");
            }
        }
    }

    /// No window of a log, no fixed window and no run of segments holds more than the limit, and no time
    /// more than a bucket's burst and what flowed in.
    #[test]
    fn no_more_than_the_limit_is_admitted(
        limit in limits(), start in 0_u64..5_000, steps in steps(),
    ) {
        let mut counter = Counter::new(limit.clone());
        let mut admitted: Vec<(Nanos, u64)> = vec![];
        let mut now = start;
        for (wait, cost) in steps {
            now += wait;
            let units = cost.max(1);
            if counter.passes(now, units) {
                admitted.push((now, units.unsigned_abs()));
            }
        }
        let Window::Fixed(window) = limit.window else { unreachable!() };
        let (window, margin) = (window.get(), u64::from(limit.soft_margin_permille));
        let with_margin = |limit: u64| u128::from(limit + limit * margin / 1_000);
        for (index, &(from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(to, units) in &admitted[index..] {
                sum += u128::from(units);
                let span = u128::from(to - from);
                let allowed = match limit.algorithm {
                    Kinds::TokenBucket { burst, interval: false } | Kinds::LeakyBucket { burst, .. } => {
                        with_margin(burst) + span * u128::from(limit.units) / u128::from(window)
                    }
                    Kinds::TokenBucket { burst, interval: true } => {
                        with_margin(burst) + span.div_ceil(u128::from(window)) * u128::from(limit.units)
                    }
                    Kinds::SlidingLog if to - from < window => with_margin(limit.units),
                    Kinds::FixedWindow if limit.align == Align::Epoch && from / window == to / window => {
                        with_margin(limit.units)
                    }
                    Kinds::Segments { segments } if limit.align == Align::Epoch => {
                        let segment = window / u64::from(segments);
                        if to / segment - from / segment < u64::from(segments) {
                            with_margin(limit.units)
                        } else {
                            u128::MAX
                        }
                    }
                    _ => u128::MAX,
                };
                prop_assert!(sum <= allowed, "{sum} from {from} to {to}: {admitted:?}");
            }
        }
    }

    /// Time goes where it likes: no panic, nothing beyond the limits, and nobody is locked out for longer
    /// than a counter takes to become whole.
    #[test]
    fn time_may_run_back(
        limit in limits(),
        steps in prop::collection::vec((0_u64..2_000, -5_i64..20), 1..50),
    ) {
        let mut counter = Counter::new(limit.clone());
        let Window::Fixed(window) = limit.window else { unreachable!() };
        for (now, cost) in steps {
            counter.ask(now, cost);
            let standing = counter.standing(now);
            prop_assert!(standing.remaining <= standing.limit);
            let capacity = standing.limit + standing.limit * u64::from(limit.soft_margin_permille) / 1_000;
            let may_exceed = matches!(limit.algorithm, Kinds::SlidingWindow { .. });
            prop_assert!(may_exceed || counter.used(now) <= capacity, "{counter:?}");
            if let Some(state) = &counter.state {
                prop_assert!(counter.meter.limit().units > 0);
                let longest = match limit.algorithm {
                    Kinds::TokenBucket { .. } | Kinds::LeakyBucket { .. } => {
                        capacity.div_ceil(limit.units) * window.get()
                    }
                    _ => 2 * window.get(),
                };
                let settled = !counter.meter.is_ahead(state, Now::at(now));
                prop_assert!(settled, "{counter:?} at {now}");
                prop_assert!(counter.meter.whole_at(state) <= now + longest, "{counter:?} at {now}");
            }
        }
    }

    /// Whatever the numbers, even a state that no charge could have left.
    #[test]
    fn nothing_overflows(
        kind in 0_usize..9,
        (units, window, burst) in (any::<u64>(), 1_u64..=http::MAX_WINDOW_NANOS, any::<u64>()),
        (first, margin, delay) in (any::<bool>(), any::<u32>(), any::<u64>()),
        words: [u64; 3],
        steps in prop::collection::vec((any::<u64>(), any::<i64>()), 1..10),
    ) {
        let algorithm = match all(units)[kind] {
            Kinds::TokenBucket { interval, .. } => Kinds::TokenBucket { burst, interval },
            Kinds::LeakyBucket { max_delay: None, .. } => leaky_bucket(burst),
            Kinds::LeakyBucket { .. } => Kinds::LeakyBucket { burst, max_delay: Some(delay) },
            other => other,
        };
        let align = if first { Align::First } else { Align::Epoch };
        let limit = Limit { align, soft_margin_permille: margin, ..limit(units, window, algorithm) };
        let mut counter = Counter::new(limit);
        for kind in [Kind::Level, Kind::Refill, Kind::Count, Kind::Pair] {
            counter.state = Some(State::unpack(kind, words));
            for &(now, cost) in &steps {
                counter.ask(now, cost);
                let standing = counter.standing(now);
                prop_assert!(standing.remaining <= standing.limit);
                counter.used(now);
                counter.charge(now, cost);
                if let Some(state) = &counter.state {
                    counter.meter.whole_at(state);
                }
            }
        }
    }

    /// Every change of a limit keeps what was used, as far as the new one has room for it.
    #[test]
    fn a_change_keeps_what_was_used(
        old in limits(), new in limits(), start in 0_u64..5_000, steps in steps(),
    ) {
        let mut counter = Counter::new(old);
        let mut now = start;
        for (wait, cost) in steps {
            now += wait;
            counter.ask(now, cost);
        }
        let used = counter.used(now);
        let counter = counter.changed(now, new);
        let limit = counter.standing(now).limit;
        if counter.meter.limit().soft_margin_permille == 0 {
            prop_assert_eq!(counter.used(now), used.min(limit));
        } else {
            prop_assert!(counter.used(now) >= used.min(limit));
        }
    }
}

#[test]
fn a_clock_that_is_set_gives_no_burst_and_locks_nobody_out() {
    for kind in all(10) {
        for step in [-11 * SECOND.cast_signed(), -HOUR.cast_signed(), DAY.cast_signed()] {
            let start = 30 * DAY + SECOND;
            let mut counter = Counter::new(limit(10, MINUTE, kind));
            assert_eq!(counter.offer(start, 12), 10, "{kind:?}");
            let set = start.saturating_add_signed(step);
            let at_once = counter.offer(set, 100);
            // What is from the future counts as of now.
            assert!(if step < 0 { at_once == 0 } else { at_once <= 10 }, "{kind:?} {step}: {at_once}");
            // One window for what counted, and one for what a sliding window carries on.
            assert!(counter.passes(set + 2 * MINUTE, 1), "{kind:?} {step}");
            let again = Counter { state: counter.state.clone(), ..counter }.offer(set + 3 * MINUTE, 100);
            assert!(again <= 10, "{kind:?} {step}: {again}");
        }
    }
}

#[test]
fn soft_limits_admit_a_margin_and_say_so() {
    for kind in all(25) {
        let mut counter = Counter::new(Limit { soft_margin_permille: 100, ..limit(25, HOUR, kind) });
        let shapes = matches!(kind, Kinds::LeakyBucket { max_delay: Some(_), .. });
        for asked in 1..=27 {
            let Outcome::Admit { soft_over, delay } = counter.ask(HOUR, 1) else {
                panic!("{kind:?} {asked}")
            };
            assert_eq!(soft_over, asked > 25, "{kind:?} {asked}");
            assert_eq!(delay > 0, shapes && asked > 1, "{kind:?} {asked}");
        }
        assert!(!counter.passes(HOUR, 1), "{kind:?}");
        assert_eq!((counter.standing(HOUR).limit, counter.remaining(HOUR)), (25, 0), "{kind:?}");
        // Reading says so too.
        assert_eq!(counter.decide(HOUR, 0), Outcome::Admit { delay: 0, soft_over: true }, "{kind:?}");
    }
}

#[test]
fn each_limit_goes_by_its_clock() {
    let now = Now { steady: 90 * MINUTE, utc: 95 * MINUTE };
    for kind in all(10) {
        for align in [Align::Epoch, Align::First] {
            let meter = Meter::new(Limit { align, ..limit(10, HOUR, kind) });
            let has_windows = !matches!(
                kind,
                Kinds::TokenBucket { interval: false, .. } | Kinds::LeakyBucket { .. } | Kinds::SlidingLog
            );
            let utc = has_windows && align == Align::Epoch;
            assert_eq!(meter.goes_by_utc(), utc, "{kind:?} {align:?}");
            assert_eq!(meter.time(now), if utc { now.utc } else { now.steady }, "{kind:?} {align:?}");
        }
    }
    let meter = Meter::new(limit(10, HOUR, Kinds::FixedWindow));
    assert_eq!(meter.standing(None, now).reset, 25 * MINUTE);
}

#[test]
fn small_states_pack_into_three_words() {
    assert_eq!(size_of::<Option<State>>(), 32);
    for kind in all(10) {
        let mut counter = Counter::new(limit(10, HOUR, kind));
        counter.charge(HOUR + 7, 3);
        counter.charge(2 * HOUR, 4);
        let state = counter.state.unwrap();
        match state.clone().pack() {
            Ok((kind, words)) => assert_eq!(State::unpack(kind, words), state),
            Err(unpacked) => {
                assert_eq!(unpacked, state);
                let State::Log(log) = state else { panic!("{state:?}") };
                let entries: Vec<_> = log.entries().collect();
                assert_eq!(
                    entries.iter().map(|&(_, units)| units).sum::<u64>(),
                    counter.meter.used(Some(&State::Log(log.clone())), Now::at(2 * HOUR))
                );
                assert_eq!(Log::from_entries(entries.clone()).entries().collect::<Vec<_>>(), entries);
            }
        }
    }
}

#[test]
fn a_state_moves_to_another_clock() {
    for kind in all(10) {
        let mut counter = Counter::new(limit(10, HOUR, kind));
        counter.charge(HOUR + 7, 3);
        counter.charge(HOUR + MINUTE, 4);
        let before = (counter.standing(HOUR + MINUTE), counter.used(HOUR + MINUTE));
        let step = (5 * HOUR).cast_signed();
        counter.state = counter.state.map(|state| state.shifted(step));
        assert_eq!(
            (counter.standing(6 * HOUR + MINUTE), counter.used(6 * HOUR + MINUTE)),
            before,
            "{kind:?}"
        );
        counter.state = counter.state.map(|state| state.shifted(-step));
        assert_eq!((counter.standing(HOUR + MINUTE), counter.used(HOUR + MINUTE)), before, "{kind:?}");
    }
}
