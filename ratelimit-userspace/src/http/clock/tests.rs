use proptest::prelude::*;

use super::*;

const S: u64 = NANOS_PER_SECOND;
const START: u64 = 1_700_000_000 * S;

fn clock() -> Offsets {
    Offsets::new(100 * S, START)
}

#[test]
fn both_start_at_the_time_of_day() {
    assert_eq!(clock().now(100 * S, START), Now::at(START));
}

#[test]
fn both_follow_the_monotonic_clock() {
    assert_eq!(clock().now(107 * S, START + 7 * S), Now::at(START + 7 * S));
}

#[test]
fn utc_follows_a_step_forward_and_steady_does_not() {
    let day = 86_400 * S;
    let now = clock().now(101 * S, START + S + day);
    assert_eq!(now, Now { steady: START + S, utc: START + S + day });
}

#[test]
fn after_a_step_back_utc_goes_on_until_the_wall_clock_is_ahead_again() {
    let clock = clock();
    assert_eq!(clock.now(110 * S, START + 10 * S - 3600 * S), Now::at(START + 10 * S));
    assert_eq!(clock.now(111 * S, START + 11 * S - 3600 * S), Now::at(START + 11 * S));
    // Set right, then half a second ahead.
    assert_eq!(clock.now(112 * S, START + 12 * S), Now::at(START + 12 * S));
    assert_eq!(clock.now(113 * S, START + 13 * S + S / 2).utc, START + 13 * S + S / 2);
}

#[test]
fn after_steps_forward_and_back_utc_keeps_the_forward_step() {
    let clock = clock();
    assert_eq!(clock.now(101 * S, START + 61 * S).utc, START + 61 * S);
    assert_eq!(clock.now(102 * S, START + 2 * S).utc, START + 62 * S);
}

#[test]
fn a_wall_clock_from_before_the_boot_counts_from_the_epoch() {
    let clock = Offsets::new(500 * S, 3 * S);
    assert_eq!(clock.now(501 * S, 4 * S), Now::at(501 * S));
    assert_eq!(clock.now(502 * S, START), Now { steady: 502 * S, utc: START });
}

#[test]
fn times_beyond_the_range_saturate() {
    assert_eq!(clock().now(u64::MAX, u64::MAX), Now::at(u64::MAX));
}

#[test]
fn the_clock_of_the_system_is_near_the_time_of_day_and_moves_on() {
    let clock = Clock::new();
    let first = clock.now();
    let second = clock.now();
    assert!(first.steady <= second.steady && first.utc <= second.utc);
    let wall = nanos(ClockId::Realtime);
    assert!(wall.abs_diff(second.utc) < 60 * S, "{second:?} against {wall}");
}

proptest! {
    #[test]
    fn neither_goes_back_whatever_the_wall_clock_does(
        steps in prop::collection::vec((0..10 * S, -86_400_i64..86_400), 1..50)
    ) {
        let clock = clock();
        let (mut monotonic, mut wall) = (100 * S, START);
        let mut last = clock.now(monotonic, wall);
        for (passed, step) in steps {
            monotonic += passed;
            wall = (wall + passed).saturating_add_signed(step * 1_000_000_000);
            let now = clock.now(monotonic, wall);
            prop_assert_eq!(now.steady, last.steady + passed);
            prop_assert!(now.utc >= last.utc + passed, "slower than time passes");
            prop_assert!(now.utc >= wall, "behind the time of day");
            last = now;
        }
    }
}
