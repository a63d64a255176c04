use super::*;

/// Hashes as the limiter makes them: any mixing function will do, with a fixed seed.
pub(in crate::http::metrics) fn identity(seed: u64, number: u64) -> Identity {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03);
    x = (x ^ x >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    Identity::new([number, x ^ x >> 32])
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn the_error_is_small_at_every_size() {
    const SEEDS: u64 = 16;
    for (size, largest_mean, largest) in [
        (0u64, 0.0, 0.0),
        (1, 0.0, 0.0),
        (10, 0.02, 0.11),
        (100, 0.01, 0.07),
        (1_000, 0.02, 0.12),
        (10_000, 0.025, 0.12),
        (100_000, 0.025, 0.12),
    ] {
        let errors: Vec<f64> = (0..SEEDS)
            .map(|seed| {
                let sketch = Recent::new();
                for number in 0..size {
                    sketch.add(identity(seed, number), 0);
                    sketch.add(identity(seed, number), 0);
                }
                (sketch.count(0) as f64 - size as f64) / (size as f64).max(1.0)
            })
            .collect();
        let mean = errors.iter().sum::<f64>() / SEEDS as f64;
        assert!(mean.abs() <= largest_mean, "{size}: mean error {mean}");
        for error in errors {
            assert!(error.abs() <= largest, "{size}: {error}");
        }
    }
}

#[test]
fn clients_are_forgotten_after_the_hour_that_follows() {
    let start = 500_000 * HOUR + HOUR / 2;
    let sketch = Recent::new();
    sketch.add(identity(0, 1), start);
    sketch.add(identity(0, 2), start + HOUR);
    assert_eq!(sketch.count(start + HOUR), 2);
    assert_eq!(sketch.count(start + 2 * HOUR), 1);
    sketch.add(identity(0, 3), start + 2 * HOUR);
    assert_eq!(sketch.count(start + 2 * HOUR), 2);
    // Hours in which nobody came.
    assert_eq!(sketch.count(start + 4 * HOUR), 0);
    sketch.add(identity(0, 4), start + 4 * HOUR);
    assert_eq!(sketch.count(start + 5 * HOUR), 1);
    // A clock that ran back.
    sketch.add(identity(0, 5), start);
    assert_eq!(sketch.count(start + 5 * HOUR), 2);
}

#[test]
fn every_hash_has_a_register_and_a_rank() {
    let place = |hash| place(Identity::new([0, hash]));
    assert_eq!(place(0), (0, 55));
    assert_eq!(place(u64::MAX), (REGISTERS - 1, 1));
    assert_eq!(place(1 << 54), (1, 55));
    assert_eq!(place(1), (0, 54));
    assert_eq!(place(1 << 53), (0, 1));
    let full = Recent::new();
    for register in 0..REGISTERS as u64 {
        full.add(Identity::new([0, register << 54]), 0);
    }
    assert!(full.count(0) > 1 << 60);
}
