//! What becomes of a sample (see [`crate::sampler`]): its source's entry in `talkers`, and, if the packet was
//! refused, a record in `samples`.

use core::mem;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    address::{Address, Family, prefix_mask},
    bucket_table::Cell,
    sampler::spread,
};

/// Sources that are kept apart. With more, those seen least recently give way.
pub const TALKERS: usize = 16_384;

/// Bytes of the ring of records.
pub const RING: usize = 256 * 1024;

/// A source: the key of `talkers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Source {
    /// 4 or 6.
    pub family: u32,
    /// Bits of the prefix that makes one client.
    pub length: u32,
    /// [`Address::high`], masked.
    pub high: u64,
    /// [`Address::low`], masked.
    pub low: u64,
}

/// What is known of a source: the value of `talkers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Talker<C> {
    /// Passed.
    pub passed: Traffic<C>,
    /// Shed, or what would be if nothing monitored.
    pub shed: Traffic<C>,
    /// When it was first sampled, in nanoseconds of the monotonic clock.
    pub first_seen: C,
    /// When it was last sampled.
    pub last_seen: C,
}

/// An estimate of packets and bytes of whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Traffic<C> {
    /// The sum of the samples' weights.
    pub packets: C,
    /// The sum of their lengths times their weights.
    pub bytes: C,
    /// The sum of their [`spread`]s: the variance of `packets`, at most.
    pub variance: C,
}

/// A refused packet: a record in `samples`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Refused {
    /// When it came, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// How many refused packets it stands for, itself among them: all with the same reason, on the same CPU,
    /// since the last record of that kind.
    pub weight: u64,
    /// Its source, if it has a family: [`Address::high`] and [`Address::low`].
    pub source: [u64; 2],
    /// Its destination, likewise.
    pub destination: [u64; 2],
    /// Bytes of the whole frame.
    pub length: u32,
    /// Index of the interface where it came in.
    pub interface: u32,
    /// A [`crate::record::Reason`].
    pub reason: u32,
    /// Counter slot of the rule that it met, or [`Refused::NONE`].
    pub counter_slot: u32,
    /// Index of the limit that refused it, or [`Refused::NONE`].
    pub limit: u32,
    /// 1 if it was shed, 0 if it passed because something monitors.
    pub shed: u32,
    /// 4, 6, or 0 if its addresses could not be read.
    pub family: u32,
    /// Like [`crate::packet::Packet::protocol`].
    pub protocol: u32,
    /// Like [`crate::packet::Packet::source_port`].
    pub source_port: u32,
    /// Like [`crate::packet::Packet::destination_port`].
    pub destination_port: u32,
}

/// How many records of one reason a CPU may still write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Budget {
    /// The time in nanoseconds until which those written are paid for.
    paid_until: u64,
    /// The weight of samples of which there is no record.
    untold: u64,
}

/// The number by which a family is known outside of the program.
#[inline(always)]
pub const fn family_number(family: Family) -> u32 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

// === impl Source ===

impl Source {
    /// The client that an address belongs to, where `length` bits of the family's addresses make one.
    #[inline(always)]
    pub const fn of(address: &Address, length: u32) -> Self {
        // Lengths of prefixes are at most 128.
        let [high, low] = prefix_mask((length & 0xff) as u8);
        Self {
            family: family_number(address.family),
            length,
            high: address.high & high,
            low: address.low & low,
        }
    }
}

// === impl Talker ===

impl<C: Cell> Talker<C> {
    /// Adds a sample of `length` bytes.
    #[inline(always)]
    pub fn add(&self, refused: bool, weight: u64, length: u64, now: u64) {
        let traffic = if refused { &self.shed } else { &self.passed };
        traffic.packets.add(weight);
        traffic.bytes.add(weight * length);
        if weight != 1 {
            traffic.variance.add(spread(weight));
        }
        self.last_seen.write(now);
    }
}

// === impl Refused ===

impl Refused {
    /// No rule, or no limit.
    pub const NONE: u32 = u32::MAX;

    /// A record as it lies in the ring; `None` if it is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::read_from_bytes(bytes).ok()
    }
}

// === impl Budget ===

impl Budget {
    /// Nanoseconds that a record costs: 50 a second.
    const COST: u64 = 1_000_000_000 / 50;

    /// Nanoseconds of debt up to which records are written: ten at once.
    const BURST: u64 = 9 * Self::COST;

    /// Whether there is to be a record of a sample: if so, for how many packets it stands.
    #[inline(always)]
    pub fn spend(&mut self, weight: u64, now: u64) -> Option<u64> {
        self.untold = self.untold.saturating_add(weight);
        // Time that ran back must not silence a reason for longer than the burst.
        self.paid_until = self.paid_until.max(now).min(now.saturating_add(Self::BURST + Self::COST));
        if self.paid_until - now > Self::BURST {
            return None;
        }
        self.paid_until = self.paid_until.saturating_add(Self::COST);
        Some(mem::take(&mut self.untold))
    }

    /// Takes back what a record could not tell, for the next one.
    #[inline(always)]
    pub const fn return_untold(&mut self, weight: u64) {
        self.untold = weight;
    }
}

#[cfg(feature = "user")]
mod pod {
    use super::{Budget, Refused, Source, Talker};

    // SAFETY: repr(C), no padding and no invalid bit pattern, both checked by zerocopy's derives.
    unsafe impl aya::Pod for Source {}
    // SAFETY: repr(C), nothing but words.
    unsafe impl aya::Pod for Talker<u64> {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Refused {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Budget {}
}

#[cfg(test)]
mod tests;
