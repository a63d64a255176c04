use super::{Table, WAYS};

#[test]
fn the_lightest_makes_room() {
    let mut table = Table::<u32, u32>::new(WAYS);
    for key in 0..8 {
        *table.entry(&key, |weight| *weight) = key + 10;
    }
    *table.entry(&3, |weight| *weight) = 1;
    *table.entry(&99, |weight| *weight) = 50;
    assert_eq!(table.get(&3), None);
    assert_eq!(table.get(&99), Some(&50));
    assert_eq!((0..8).filter(|key| table.get(key).is_some()).count(), 7);
}

#[test]
fn a_known_key_displaces_nobody() {
    let mut table = Table::<u32, u32>::new(WAYS);
    for _ in 0..2 {
        for key in 0..8 {
            *table.entry(&key, |weight| *weight) += 1;
        }
    }
    assert!((0..8).all(|key| table.get(&key) == Some(&2)));
}

#[test]
fn nobody_is_known_before_the_first() {
    assert_eq!(Table::<u32, u32>::new(WAYS).get(&1), None);
}

#[test]
fn only_those_that_are_meant_are_forgotten() {
    let mut table = Table::<u32, u32>::new(64);
    table.entry(&1, |weight| *weight);
    table.entry(&2, |weight| *weight);
    table.forget(|key| *key == 1);
    assert_eq!(table.get(&1), None);
    assert_eq!(table.get(&2), Some(&0));
}
