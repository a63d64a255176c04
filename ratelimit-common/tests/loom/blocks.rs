//! Races for the ways of blocked addresses.

use ratelimit_common::{
    address::Address,
    block_table::{
        Detail, Entry, Insertion, Memory, Set, Table, WAYS, find, insert, occupant, remove, until,
    },
};

use super::{Word, explore};

const NOW: u32 = 100;
const TABLE: Table = Table { hash_key: [1, 2], id: 3, sets: 2 };

/// Two sets, so that every address may be in any of sixteen ways.
struct Sets {
    sets: Vec<Set<Word>>,
    details: Vec<Detail<Word>>,
}

impl Memory for Sets {
    type Cell = Word;

    fn set(&self, index: u32) -> Option<&Set<Word>> {
        self.sets.get(index as usize)
    }

    fn detail(&self, index: u32) -> Option<&Detail<Word>> {
        self.details.get(index as usize)
    }
}

impl Sets {
    fn new() -> Self {
        let word = || Word::new(0);
        Self {
            sets: (0..2).map(|_| Set { ways: core::array::from_fn(|_| word()) }).collect(),
            details: (0..2 * WAYS)
                .map(|_| Detail { high: word(), low: word(), about: word(), since: word() })
                .collect(),
        }
    }

    /// With all ways but `free` taken for long.
    fn almost_full(free: u32) -> Self {
        let sets = Self::new();
        for number in 0..2 * WAYS - free {
            assert_eq!(sets.insert(v4(1000 + number), 1000), Insertion::Added);
        }
        sets
    }

    fn insert(&self, address: Address, until: u32) -> Insertion {
        insert(self, &TABLE, &address, &Entry { until, about: until.into(), since: 1 }, NOW)
    }

    fn until(&self, address: Address) -> u32 {
        until(self, &TABLE, &address)
    }

    fn remove(&self, address: Address) -> bool {
        remove(self, &TABLE, &address, NOW)
    }

    fn used(&self) -> usize {
        (0..2 * WAYS).filter(|index| occupant(self, *index, NOW).is_some()).count()
    }
}

fn v4(number: u32) -> Address {
    Address::v4(number.to_be_bytes())
}

fn v6(number: u32) -> Address {
    Address::v6((0x2001_0db8_u128 << 96 | u128::from(number)).to_be_bytes())
}

/// Two addresses that [`TABLE`] gives the same tag: only the detail tells them apart.
const NAMESAKES: [u32; 2] = [9736, 48557];

#[test]
fn an_address_that_two_cpus_insert_is_blocked_and_can_be_removed() {
    for address in [v4(1), v6(1)] {
        explore(
            Sets::new,
            move |sets| sets.insert(address, 200),
            move |sets| sets.insert(address, 201),
            move |sets, a, b| {
                assert!(a == Insertion::Added || b == Insertion::Added, "{a:?} {b:?}");
                assert!(![a, b].contains(&Insertion::Full));
                assert!([200, 201].contains(&sets.until(address)));
                assert!(sets.used() <= 2);
                assert!(sets.remove(address));
                assert_eq!((sets.until(address), sets.used()), (0, 0));
            },
        );
    }
}

#[test]
fn two_addresses_do_not_get_one_way() {
    for free in [1, 2] {
        explore(
            move || Sets::almost_full(free),
            |sets| sets.insert(v4(1), 200),
            |sets| sets.insert(v6(1), 201),
            move |sets, a, b| {
                let added = [a, b].iter().filter(|inserted| **inserted == Insertion::Added).count();
                assert_eq!(added, free as usize, "{a:?} {b:?}");
                assert_eq!(sets.until(v4(1)), if a == Insertion::Added { 200 } else { 0 });
                assert_eq!(sets.until(v6(1)), if b == Insertion::Added { 201 } else { 0 });
                assert_eq!(sets.used(), 2 * WAYS as usize);
            },
        );
    }
}

#[test]
fn an_insertion_and_a_removal_happen_one_after_the_other() {
    for address in [v4(1), v6(1)] {
        for known in [false, true] {
            explore(
                move || {
                    let sets = Sets::new();
                    if known {
                        assert_eq!(sets.insert(address, 150), Insertion::Added);
                    }
                    sets
                },
                move |sets| Some(sets.insert(address, 200)),
                move |sets| sets.remove(address).then_some(Insertion::Added),
                move |sets, inserted, removed| {
                    match (inserted, sets.until(address)) {
                        (Some(Insertion::Added | Insertion::Replaced), 200) => {
                            assert_eq!(find(sets, &TABLE, &address, NOW).unwrap().about, 200);
                        }
                        (Some(Insertion::Added | Insertion::Replaced), 0) => assert!(removed.is_some()),
                        (Some(Insertion::Busy), 0) => {}
                        other => panic!("{other:?}"),
                    }
                    // Nothing is left of the one that gave way.
                    sets.remove(address);
                    assert_eq!(sets.used(), 0);
                    assert_eq!(sets.insert(address, 300), Insertion::Added);
                },
            );
        }
    }
}

#[test]
fn a_way_that_changes_hands_blocks_neither_too_much_nor_the_wrong_one() {
    let [old, new] = NAMESAKES.map(v6);
    explore(
        move || {
            let sets = Sets::almost_full(1);
            // Ended before now; its way is the only one that is free.
            assert_eq!(sets.insert(old, 50), Insertion::Added);
            assert_eq!(sets.until(old), 50);
            sets
        },
        // The writer comes first: loom forgets a read of the first that the second repeats.
        move |sets| {
            assert_eq!(sets.insert(new, 200), Insertion::Added);
            [0; 2]
        },
        move |sets| [sets.until(old), sets.until(new)],
        move |sets, _, [until_old, until_new]| {
            assert!(until_old <= NOW, "blocked until {until_old}");
            assert!(until_new <= NOW || until_new == 200);
            assert_eq!((sets.until(old), sets.until(new)), (0, 200));
        },
    );
}
