//! Random addresses and random orders: the same ones in every run of the benchmark.

use std::net::Ipv4Addr;

/// `SplitMix64` ([Steele et al. 2014](https://doi.org/10.1145/2714064.2660195)).
#[derive(Debug)]
pub(crate) struct Random(u64);

/// `count` different addresses as text.
pub(crate) fn addresses(count: u32) -> Vec<String> {
    (0..count).map(|number| Ipv4Addr::from(scattered(number)).to_string()).collect()
}

/// The numbers below `count` in random order.
pub(crate) fn shuffled(count: u32, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

/// The finaliser of `MurmurHash3`: every step can be undone, so different numbers stay different.
fn scattered(number: u32) -> u32 {
    let mut bits = number;
    bits ^= bits >> 16;
    bits = bits.wrapping_mul(0x85eb_ca6b);
    bits ^= bits >> 13;
    bits = bits.wrapping_mul(0xc2b2_ae35);
    bits ^ (bits >> 16)
}

// === impl Random ===

impl Random {
    /// A sequence of its own for each seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `limit`; the bias is below one in 2^32 here.
    fn below(&mut self, limit: usize) -> usize {
        let wide = u128::from(self.next()) * limit as u128;
        usize::try_from(wide >> 64).expect("below a usize")
    }
}
