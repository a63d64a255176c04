//! Where blocked addresses live: a set-associative table, generic over its cells like
//! [`crate::bucket_table`], and shared by the XDP program and userspace.
//!
//! A set is one cache line of eight ways. A way is one word, so that it changes at once:
//!
//! ```text
//! 63        32 31     30                    0
//! | tag       | family | until, in seconds   |
//! ```
//!
//! `until` is on the monotonic clock, see [`seconds`]: a way whose time has come is free, so blocks end by
//! themselves and nobody has to clear them. The tag of an IPv4 address is the address, that of an IPv6
//! address a part of its hash; there the way's [`Detail`], in an array of its own, has the last word. What
//! is not blocked thus costs two cache lines.
//!
//! **Placement.** A key has two candidate sets. It goes to its first while that has four free ways, else
//! to the emptier of the two. Of the keys that fill a table to its capacity, which is three quarters of its
//! ways, 0.01% find no way in either, and 18% are in their second set (`block_table/tests.rs` holds these
//! figures). Whoever alone writes a table can make room for those too: see [`make_room`].
//!
//! **Races.** A way is claimed before its detail is written, and published after. Two CPUs that insert the
//! same address at once may give it two ways: look-ups take the first, both end alike, and [`remove`]
//! clears them all.

mod key;

use self::key::{Key, PLACES};
use crate::{
    address::{Address, Family},
    bucket_table::Cell,
};

/// Ways in a set: the words of a cache line.
pub const WAYS: u32 = 8;

/// The end of a block that does not end.
pub const FOREVER: u32 = u32::MAX >> 1;

/// In place of an end: the way is taken, and its detail not written yet.
const CLAIMED: u32 = FOREVER - 1;

/// The latest end that comes.
pub const LATEST: u32 = CLAIMED - 1;

/// Tries of an insertion or a removal that loses its race for a way.
const ATTEMPTS: u32 = 4;

/// Eight ways in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Set<C> {
    /// See the module's head; 0 in a way that nobody has.
    pub ways: [C; WAYS as usize],
}

/// What else is known of a way, in an array with the same order.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Detail<C> {
    /// [`Address::high`].
    pub high: C,
    /// [`Address::low`].
    pub low: C,
    /// [`Entry::about`].
    pub about: C,
    /// [`Entry::since`].
    pub since: C,
}

/// Where the ways are. An access outside cannot happen; if it did, nothing would be blocked.
pub trait Memory {
    /// The shared word.
    type Cell: Cell;
    /// A set.
    fn set(&self, index: u32) -> Option<&Set<Self::Cell>>;
    /// The detail of a way, by the index of its set times [`WAYS`] plus its place in the set.
    fn detail(&self, index: u32) -> Option<&Detail<Self::Cell>>;
}

/// What is fixed when a table is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The key of the hash.
    pub hash_key: [u64; 2],
    /// Hashed with every address, so that tables, or kinds of addresses in one, do not share keys.
    pub id: u64,
    /// Number of sets, at least 2.
    pub sets: u32,
}

/// The block of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it ends, in [`seconds`]: at most [`LATEST`], or [`FOREVER`].
    pub until: u32,
    /// Why it was made: a number for whoever reads it.
    pub about: u64,
    /// When it was made, in [`seconds`].
    pub since: u64,
}

/// A way that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Who is blocked.
    pub address: Address,
    /// The block.
    pub entry: Entry,
    index: u32,
    word: u64,
}

/// What became of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The address was not blocked.
    Added,
    /// The address was blocked already: its end and its reason are replaced, its beginning stays.
    Replaced,
    /// Others are inserting or removing at this very place: nothing was done.
    Busy,
    /// All ways of both its sets are live: nothing was done.
    Full,
}

/// Sets of a table for `capacity` addresses, with a third more ways than addresses.
pub const fn sets_for(capacity: u32) -> u32 {
    let sets = capacity.div_ceil(WAYS * 3 / 4);
    // Two at least, or the candidate sets of a key would be one.
    if sets < 2 { 2 } else { sets }
}

/// How many addresses a table of so many sets is for.
pub const fn capacity_of(sets: u32) -> u32 {
    sets.saturating_mul(WAYS * 3 / 4)
}

/// A time of the monotonic clock in whole seconds, rounded down; [`LATEST`] from then on.
///
/// Without a division, which may cost more than the look-up: 10^9 is 2^9 times 1,953,125, whose inverse
/// has 32 bits here. It is too large by one part in 3 * 10^9, which makes at most one second too many.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "it is less than 2^31")]
pub const fn seconds(nanos: u64) -> u32 {
    const INVERSE: u64 = (1_u64 << 52).div_ceil(1_953_125);
    const LOW: u64 = u32::MAX as u64;
    let units = nanos >> 9;
    let seconds = ((units >> 32) * INVERSE + (((units & LOW) * INVERSE) >> 32)) >> 20;
    let seconds = if seconds < LATEST as u64 { seconds } else { LATEST as u64 };
    (if seconds * 1_000_000_000 > nanos { seconds - 1 } else { seconds }) as u32
}

/// The hash of an address under the key of a table, for another purpose than to find it there.
#[inline(always)]
pub const fn hash(table: &Table, id: u64, address: &Address) -> u64 {
    key::hash_of(table.hash_key, id, address)
}

/// When the block of an address ends: it is blocked if that is later than now, in [`seconds`]. 0 if the
/// table does not know it.
#[inline(always)]
pub fn until<M: Memory>(memory: &M, table: &Table, address: &Address) -> u32 {
    let key = Key::new(table, address);
    for index in key.sets {
        let Some(set) = memory.set(index) else { continue };
        for (way, cell) in (0..).zip(&set.ways) {
            let word = cell.read();
            if key.owns(word) && is_of(memory, index * WAYS + way, address) && until_of(word) != CLAIMED {
                return until_of(word);
            }
        }
    }
    0
}

/// The block of an address, if it is live at `now`.
pub fn find<M: Memory>(memory: &M, table: &Table, address: &Address, now: u32) -> Option<Entry> {
    let key = Key::new(table, address);
    let place = key.search(memory, address)?;
    occupant(memory, key.index(place), now).map(|occupant| occupant.entry)
}

/// Blocks an address. `now` tells which ways are free.
pub fn insert<M: Memory>(memory: &M, table: &Table, address: &Address, entry: &Entry, now: u32) -> Insertion {
    for _ in 0..ATTEMPTS {
        let known = known_place(memory, table, address);
        let Some(place) = known.or_else(|| free_place(memory, table, address, now)) else {
            return Insertion::Full;
        };
        let insertion = insert_at(memory, table, address, entry, now, place, known.is_some());
        if insertion != Insertion::Busy {
            return insertion;
        }
    }
    Insertion::Busy
}

/// The first step of [`insert`]: the place that the address has, live or not.
#[inline(always)]
pub fn known_place<M: Memory>(memory: &M, table: &Table, address: &Address) -> Option<u32> {
    Key::new(table, address).search(memory, address)
}

/// The second step: else a place that is free at `now`.
#[inline(always)]
pub fn free_place<M: Memory>(memory: &M, table: &Table, address: &Address, now: u32) -> Option<u32> {
    Key::new(table, address).vacancy(memory, now)
}

/// The last step: writes the block to its place, which the address has or has not yet. [`Insertion::Busy`]:
/// the place has changed hands since it was looked at, and nothing was done.
#[inline(always)]
pub fn insert_at<M: Memory>(
    memory: &M,
    table: &Table,
    address: &Address,
    entry: &Entry,
    now: u32,
    place: u32,
    known: bool,
) -> Insertion {
    let key = Key::new(table, address);
    let (Some(way), Some(detail)) = (key.way(memory, place), memory.detail(key.index(place))) else {
        return Insertion::Full;
    };
    let word = way.read();
    let block = key.word(entry.end());
    if known {
        if !key.owns(word) || until_of(word) == CLAIMED || way.compare_exchange(word, block).is_err() {
            return Insertion::Busy;
        }
        detail.about.write(entry.about);
        if until_of(word) > now {
            return Insertion::Replaced;
        }
        detail.since.write(entry.since);
        return Insertion::Added;
    }
    let claim = key.word(CLAIMED);
    if until_of(word) > now || way.compare_exchange(word, claim).is_err() {
        return Insertion::Busy;
    }
    detail.write(address, entry);
    // Fails if the claim has been removed meanwhile.
    if way.compare_exchange(claim, block).is_ok() { Insertion::Added } else { Insertion::Busy }
}

/// Unblocks an address; whether it was blocked at `now`. An insertion that is under way, or was broken
/// off, comes to nothing.
pub fn remove<M: Memory>(memory: &M, table: &Table, address: &Address, now: u32) -> bool {
    let key = Key::new(table, address);
    let mut was_live = false;
    // Bounded, though nobody inserts the same address again and again.
    for _ in 0..PLACES * ATTEMPTS {
        let Some(way) = key.search(memory, address).and_then(|place| key.way(memory, place)) else { break };
        let word = way.read();
        if key.owns(word) && way.compare_exchange(word, 0).is_ok() {
            was_live |= until_of(word) > now && until_of(word) != CLAIMED;
        }
    }
    was_live
}

/// What a way holds, by the index of its detail, if it is live at `now`.
pub fn occupant<M: Memory>(memory: &M, index: u32, now: u32) -> Option<Occupant> {
    let word = memory.set(index / WAYS)?.way(index)?.read();
    let until = until_of(word);
    if until <= now || until == CLAIMED {
        return None;
    }
    let detail = memory.detail(index)?;
    let address = if key::is_v6(word) {
        Address { family: Family::V6, high: detail.high.read(), low: detail.low.read() }
    } else {
        Address { family: Family::V4, high: key::tag(word), low: 0 }
    };
    let entry = Entry { until, about: detail.about.read(), since: detail.since.read() };
    Some(Occupant { address, entry, index, word })
}

/// Whether look-ups of its address end at this way. If not, another has the same address.
pub fn is_found<M: Memory>(memory: &M, table: &Table, occupant: &Occupant) -> bool {
    let key = Key::new(table, &occupant.address);
    key.search(memory, &occupant.address).is_some_and(|place| key.index(place) == occupant.index)
}

/// Frees a way, unless it has changed since it was looked at; whether it did.
pub fn vacate<M: Memory>(memory: &M, occupant: &Occupant) -> bool {
    memory
        .set(occupant.index / WAYS)
        .and_then(|set| set.way(occupant.index))
        .is_some_and(|way| way.compare_exchange(occupant.word, 0).is_ok())
}

/// Frees a way, by the index of its detail, whose insertion was broken off. Only for a table that nobody
/// else writes.
pub fn disclaim<M: Memory>(memory: &M, index: u32) {
    if let Some(way) = memory.set(index / WAYS).and_then(|set| set.way(index))
        && until_of(way.read()) == CLAIMED
    {
        way.write(0);
    }
}

/// Moves one of the addresses that leave no way to `address` to its other set; whether one could move.
///
/// Only for a table that nobody else writes. A look-up that is under way may miss the address that moves.
pub fn make_room<M: Memory>(memory: &M, table: &Table, address: &Address, now: u32) -> bool {
    let full = Key::new(table, address);
    (0..PLACES).filter_map(|place| occupant(memory, full.index(place), now)).any(|occupant| {
        let Occupant { address, entry, .. } = &occupant;
        // Its set here is full: if there is a vacancy, it is in the other.
        let key = Key::new(table, address);
        let Some(place) = key.vacancy(memory, now) else { return false };
        let (Some(way), Some(detail)) = (key.way(memory, place), memory.detail(key.index(place))) else {
            return false;
        };
        detail.write(address, entry);
        way.write(occupant.word);
        vacate(memory, &occupant)
    })
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the 31 bits are meant")]
const fn until_of(word: u64) -> u32 {
    word as u32 & FOREVER
}

/// Whether a way that has the tag of an address is that of the address.
#[inline(always)]
fn is_of<M: Memory>(memory: &M, index: u32, address: &Address) -> bool {
    match address.family {
        Family::V4 => true,
        Family::V6 => memory
            .detail(index)
            .is_some_and(|detail| detail.high.read() == address.high && detail.low.read() == address.low),
    }
}

// === impl Entry ===

impl Entry {
    /// The end as a way can hold it.
    #[inline(always)]
    const fn end(&self) -> u32 {
        if self.until > LATEST { FOREVER } else { self.until }
    }
}

// === impl Set ===

impl<C> Set<C> {
    /// A way, by its place in the set or the index of its detail.
    #[inline(always)]
    pub fn way(&self, index: u32) -> Option<&C> {
        self.ways.get((index % WAYS) as usize)
    }
}

// === impl Detail ===

impl<C: Cell> Detail<C> {
    #[inline(always)]
    fn write(&self, address: &Address, entry: &Entry) {
        self.high.write(address.high);
        self.low.write(address.low);
        self.about.write(entry.about);
        self.since.write(entry.since);
    }
}

#[cfg(test)]
mod tests;
