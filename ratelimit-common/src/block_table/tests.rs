//! The table against a plain map, the figures that the module's head gives, and the clock.

extern crate std;

use core::sync::atomic::AtomicU64;
use std::{collections::HashMap, vec::Vec};

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

struct Ways {
    sets: Vec<Set<AtomicU64>>,
    details: Vec<Detail<AtomicU64>>,
    table: Table,
}

impl Memory for Ways {
    type Cell = AtomicU64;

    fn set(&self, index: u32) -> Option<&Set<AtomicU64>> {
        self.sets.get(index as usize)
    }

    fn detail(&self, index: u32) -> Option<&Detail<AtomicU64>> {
        self.details.get(index as usize)
    }
}

impl Ways {
    fn new(sets: u32) -> Self {
        let word = || AtomicU64::new(0);
        Self {
            sets: (0..sets).map(|_| Set { ways: core::array::from_fn(|_| word()) }).collect(),
            details: (0..sets * WAYS)
                .map(|_| Detail { high: word(), low: word(), about: word(), since: word() })
                .collect(),
            table: Table { hash_key: [1, 2], id: 3, sets },
        }
    }

    fn insert(&self, address: &Address, entry: &Entry, now: u32) -> Insertion {
        insert(self, &self.table, address, entry, now)
    }

    fn until(&self, address: &Address) -> u32 {
        until(self, &self.table, address)
    }

    fn occupants(&self, now: u32) -> Vec<Occupant> {
        let ways = u32::try_from(self.details.len()).expect("it is small");
        (0..ways).filter_map(|index| occupant(self, index, now)).collect()
    }
}

fn v4(number: u32) -> Address {
    Address::v4(number.to_be_bytes())
}

fn v6(number: u32) -> Address {
    Address::v6((0x2001_0db8_u128 << 96 | u128::from(number)).to_be_bytes())
}

fn entry(until: u32) -> Entry {
    Entry { until, about: u64::from(until) + 7, since: 1 }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(Address, u32),
    Remove(Address),
    Wait(u32),
}

/// Of the two families in turn, numbers that repeat often.
fn address() -> impl Strategy<Value = Address> {
    (any::<bool>(), 0..24_u32).prop_map(|(is_v4, number)| if is_v4 { v4(number) } else { v6(number) })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (address(), prop_oneof![1..40_u32, Just(FOREVER)]).prop_map(|(address, time)| Step::Insert(address, time)),
        1 => address().prop_map(Step::Remove),
        1 => (1..20_u32).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Sixteen ways for 48 addresses: the table fills up, and ways are used again.
    #[test]
    fn it_is_a_map_as_long_as_it_has_room(steps in vec(step(), 0..200), with_room: bool) {
        let sets = Ways::new(2);
        let mut model: HashMap<_, Entry> = HashMap::new();
        let mut now = 100_u32;
        let of = |address: &Address| (address.family == Family::V4, address.high, address.low);
        for step in steps {
            match step {
                Step::Insert(address, time) => {
                    let until = if time == FOREVER { FOREVER } else { now + time };
                    let entry = Entry { until, about: u64::from(time), since: now.into() };
                    let known = model.get(&of(&address)).copied();
                    let inserted = sets.insert(&address, &entry, now);
                    match inserted {
                        Insertion::Added => prop_assert!(known.is_none()),
                        Insertion::Replaced => prop_assert!(known.is_some()),
                        Insertion::Full => prop_assert!(known.is_none() && model.len() == 16),
                        Insertion::Busy => prop_assert!(false, "nobody else is at work"),
                    }
                    if with_room && inserted == Insertion::Full {
                        // With two sets, the other set of each address is full as well.
                        prop_assert!(!make_room(&sets, &sets.table, &address, now));
                    }
                    if inserted != Insertion::Full {
                        let since = known.map_or(entry.since, |known| known.since);
                        model.insert(of(&address), Entry { since, ..entry });
                    }
                }
                Step::Remove(address) => {
                    let removed = remove(&sets, &sets.table, &address, now);
                    prop_assert_eq!(removed, model.remove(&of(&address)).is_some());
                }
                Step::Wait(time) => now += time,
            }
            model.retain(|_, entry| entry.until > now);
            for number in 0..24 {
                for address in [v4(number), v6(number)] {
                    let expected = model.get(&of(&address)).copied();
                    prop_assert_eq!(sets.until(&address) > now, expected.is_some());
                    prop_assert_eq!(find(&sets, &sets.table, &address, now), expected);
                }
            }
            prop_assert_eq!(sets.occupants(now).len(), model.len());
        }
        for occupant in sets.occupants(now) {
            prop_assert_eq!(model.get(&of(&occupant.address)), Some(&occupant.entry));
        }
    }

    #[test]
    fn candidate_sets_differ_and_exist(number: u32, v6_octets: [u8; 16], sets in select(&[2, 3, 7, 5462, 174_763, u32::MAX][..])) {
        let table = Table { hash_key: [5, 6], id: 7, sets };
        for address in [v4(number), Address::v6(v6_octets)] {
            let [first, second] = Key::new(&table, &address).sets;
            prop_assert!(first < sets && second < sets && first != second, "{first} {second} of {sets}");
        }
    }

    #[test]
    fn seconds_are_whole(nanos in 0..=(u64::from(LATEST) + 1) * 1_000_000_000, seconds_before: u32) {
        let exact = |nanos: u64| (nanos / 1_000_000_000).min(LATEST.into());
        prop_assert_eq!(u64::from(seconds(nanos)), exact(nanos));
        let border = u64::from(seconds_before) * 1_000_000_000;
        for nanos in [border, border.saturating_sub(1)] {
            prop_assert_eq!(u64::from(seconds(nanos)), exact(nanos));
        }
    }
}

#[test]
fn sizes_are_those_of_cache_lines() {
    assert_eq!((size_of::<Set<AtomicU64>>(), align_of::<Set<AtomicU64>>()), (64, 64));
    assert_eq!((size_of::<Detail<AtomicU64>>(), align_of::<Detail<AtomicU64>>()), (32, 32));
}

#[test]
fn a_third_more_ways_than_addresses() {
    assert_eq!((sets_for(0), sets_for(12), sets_for(13)), (2, 2, 3));
    assert_eq!((sets_for(1 << 20), capacity_of(174_763)), (174_763, (1 << 20) + 2));
    assert_eq!(capacity_of(u32::MAX), u32::MAX);
}

#[test]
fn the_clock_stops_before_the_end_of_what_does_not_end() {
    assert_eq!((seconds(0), seconds(999_999_999), seconds(1_000_000_000)), (0, 0, 1));
    assert_eq!(seconds(u64::MAX), LATEST);
    assert!(seconds(u64::MAX) < FOREVER);
}

#[test]
fn the_end_is_the_first_second_without_the_block() {
    let sets = Ways::new(2);
    assert_eq!(sets.insert(&v4(1), &entry(10), 5), Insertion::Added);
    assert_eq!(sets.until(&v4(1)), 10);
    assert!(find(&sets, &sets.table, &v4(1), 9).is_some());
    assert!(find(&sets, &sets.table, &v4(1), 10).is_none());
    // Ended, and begun again: with another beginning.
    let again = Entry { since: 11, ..entry(20) };
    assert_eq!(sets.insert(&v4(1), &again, 11), Insertion::Added);
    assert_eq!(find(&sets, &sets.table, &v4(1), 11), Some(again));
}

#[test]
fn ends_out_of_range_are_never() {
    let sets = Ways::new(2);
    for (number, until) in (0..).zip([LATEST + 1, FOREVER, FOREVER + 1, u32::MAX]) {
        assert_eq!(sets.insert(&v4(number), &entry(until), 5), Insertion::Added);
        assert_eq!(sets.until(&v4(number)), FOREVER);
        assert_eq!(sets.until(&v6(number)), 0);
    }
    assert_eq!(sets.insert(&v4(9), &entry(LATEST), 5), Insertion::Added);
    assert_eq!(sets.until(&v4(9)), LATEST);
}

#[test]
fn tables_with_other_ids_do_not_know_the_address() {
    let sets = Ways::new(1000);
    let other = Table { id: 4, ..sets.table };
    for number in 0..100 {
        assert_eq!(sets.insert(&v6(number), &entry(10), 5), Insertion::Added);
        assert_eq!(until(&sets, &other, &v6(number)), 0);
    }
}

/// Two IPv6 addresses with one tag that share a set of two, so that only the detail tells them apart.
fn namesakes(table: &Table) -> (Address, Address) {
    let mut seen = HashMap::new();
    (0..)
        .find_map(|number| {
            let word = Key::new(table, &v6(number)).word(0);
            seen.insert(word, number).map(|other| (v6(other), v6(number)))
        })
        .expect("the tag has 32 bits")
}

#[test]
fn the_detail_tells_namesakes_apart() {
    let sets = Ways::new(2);
    let (one, other) = namesakes(&sets.table);
    std::println!("{one:?} {other:?}");
    assert_eq!(sets.insert(&one, &entry(10), 5), Insertion::Added);
    assert_eq!((sets.until(&one), sets.until(&other)), (10, 0));
    assert_eq!(sets.insert(&other, &entry(20), 5), Insertion::Added);
    assert_eq!((sets.until(&one), sets.until(&other)), (10, 20));
    assert!(remove(&sets, &sets.table, &one, 5));
    assert_eq!((sets.until(&one), sets.until(&other)), (0, 20));
}

#[test]
fn an_insertion_that_was_broken_off_blocks_nobody_and_can_be_cleared() {
    for address in [v4(1), v6(1)] {
        let sets = Ways::new(2);
        let key = Key::new(&sets.table, &address);
        let claim = |place: u32| {
            key.way(&sets, place).expect("a way").write(key.word(CLAIMED));
        };
        claim(3);
        assert_eq!(sets.until(&address), 0);
        assert_eq!(find(&sets, &sets.table, &address, 5), None);
        assert_eq!(sets.occupants(5), []);
        assert_eq!(sets.insert(&address, &entry(10), 5), Insertion::Busy);
        assert!(!remove(&sets, &sets.table, &address, 5));
        assert_eq!(sets.insert(&address, &entry(10), 5), Insertion::Added);

        claim(12);
        for index in 0..16 {
            disclaim(&sets, index);
        }
        assert!(key.way(&sets, 12).expect("a way").read() == 0);
        assert_eq!(sets.until(&address), 10);
    }
}

#[test]
fn a_way_that_nobody_has_is_not_that_of_the_lowest_address() {
    let sets = Ways::new(2);
    // In their ways, the first comes before the second.
    sets.insert(&v6(10), &entry(10), 5);
    sets.insert(&v4(0), &entry(20), 5);
    assert!(remove(&sets, &sets.table, &v6(10), 5));
    assert_eq!(sets.until(&v4(0)), 20);
    assert!(remove(&sets, &sets.table, &v4(0), 5));
    assert!(!remove(&sets, &sets.table, &v4(0), 5));
}

#[test]
fn a_way_that_changed_is_not_freed() {
    let sets = Ways::new(2);
    sets.insert(&v4(1), &entry(10), 5);
    let [occupant] = sets.occupants(5)[..] else { panic!("one way is in use") };
    sets.insert(&v4(1), &entry(11), 5);
    assert!(!vacate(&sets, &occupant));
    let [occupant] = sets.occupants(5)[..] else { panic!("one way is in use") };
    assert!(vacate(&sets, &occupant));
    assert_eq!(sets.until(&v4(1)), 0);
}

/// Fills a table to its capacity. The shares of addresses that found no way, and that are in their second
/// set; and how many found none when room was made for them.
fn fill(with: fn(u32) -> Address) -> (f64, f64, u32) {
    const CAPACITY: u32 = 1 << 18;
    let sets = Ways::new(sets_for(CAPACITY));
    let (mut full, mut second, mut lost) = (0_u32, 0_u32, 0_u32);
    for number in 0..CAPACITY {
        let address = with(number);
        match sets.insert(&address, &entry(10), 5) {
            Insertion::Added => {
                let place = Key::new(&sets.table, &address).search(&sets, &address).expect("just added");
                second += u32::from(place >= WAYS);
            }
            Insertion::Full => {
                full += 1;
                let made = make_room(&sets, &sets.table, &address, 5);
                lost += u32::from(!made || sets.insert(&address, &entry(10), 5) != Insertion::Added);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sets.occupants(5).len(), (CAPACITY - lost) as usize);
    assert!(
        (0..CAPACITY).filter(|number| sets.until(&with(*number)) == 10).count() == (CAPACITY - lost) as usize
    );
    (f64::from(full) / f64::from(CAPACITY), f64::from(second) / f64::from(CAPACITY), lost)
}

#[test]
fn placement_loses_as_few_as_the_head_says() {
    for with in [v4, v6] {
        let (full, second, lost) = fill(with);
        assert!((0.000_04..0.000_16).contains(&full), "{full} found no way");
        assert!((0.17..0.18).contains(&second), "{second} are in the second set");
        assert_eq!(lost, 0, "room can be made");
    }
}
