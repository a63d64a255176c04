use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

/// Identities that all begin their search in a few cells, with few different tags.
fn crowded(number: u64) -> Identity {
    Identity::new([(number % 3) << 56, (number % 5) << 61 | number])
}

#[derive(Default)]
struct Model {
    index: Index,
    identities: Vec<Identity>,
}

impl Model {
    fn find(&self, identity: Identity) -> Option<Slot> {
        self.index.find(identity, |slot| self.identities[slot as usize] == identity)
    }

    fn insert(&mut self, identity: Identity) {
        let entries = self.identities.len() + 1;
        if self.index.is_full(entries) {
            let all = self.identities.iter().zip(0..).map(|(identity, slot)| (*identity, slot));
            self.index.rebuild(entries, all);
        }
        self.index.insert(identity, Slot::try_from(self.identities.len()).unwrap());
        self.identities.push(identity);
    }

    fn remove(&mut self, identity: Identity) {
        let Some(slot) = self.find(identity) else { return };
        self.index.remove(identity, slot, |slot| self.identities[slot as usize]);
        let last = Slot::try_from(self.identities.len() - 1).unwrap();
        let moved = self.identities[last as usize];
        self.identities.swap_remove(slot as usize);
        if slot != last {
            self.index.relocate(moved, last, slot);
        }
    }
}

#[test]
fn an_index_without_cells_finds_nothing() {
    assert_eq!(Index::default().find(crowded(1), |_| true), None);
    assert!(Index::default().is_full(1));
}

#[test]
fn it_is_never_fuller_than_three_quarters_nor_emptier_than_two_thirds() {
    let mut model = Model::default();
    for number in 0..20_000_u64 {
        model.insert(Identity::new([number << 56, number.wrapping_mul(0x9E37_79B9_7F4A_7C15)]));
        let (entries, cells) = (model.identities.len(), model.index.cells.len());
        assert!(entries * 4 <= cells * 3, "{entries} in {cells}");
        assert!(entries * 3 + 48 >= cells * 2, "{entries} in {cells}");
    }
}

#[test]
fn shrinking_is_due_at_half_and_keeps_what_is_there() {
    let mut index = Index::default();
    index.rebuild(1_000, (0..500).map(|number| (crowded(u64::from(number)), number)));
    assert!(!index.is_sparse(500));
    assert!(index.is_sparse(400));
    index.rebuild(500, (0..500).map(|number| (crowded(u64::from(number)), number)));
    for number in 0..500 {
        assert_eq!(index.find(crowded(u64::from(number)), |slot| slot == number), Some(number));
    }
}

proptest! {
    #[test]
    fn it_finds_what_a_set_holds(steps in prop::collection::vec((any::<bool>(), 0..40_u64), 1..300)) {
        let mut model = Model::default();
        let mut set = HashSet::new();
        for (add, number) in steps {
            let identity = crowded(number);
            if !add {
                model.remove(identity);
                set.remove(&identity);
            } else if set.insert(identity) {
                model.insert(identity);
            }
            for number in 0..40 {
                let identity = crowded(number);
                prop_assert_eq!(model.find(identity).is_some(), set.contains(&identity));
            }
        }
    }
}
