//! The hash against another implementation of SipHash-1-3, over the message as documented.

extern crate std;

use core::hash::Hasher as _;
use std::{collections::HashSet, vec::Vec};

use proptest::prelude::*;
use siphasher::sip::SipHasher13;

use super::*;

fn reference(key: [u64; 2], message: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(key[0], key[1]);
    hasher.write(message);
    hasher.finish()
}

fn limit(id: u64, ipv4: u8, ipv6: u8) -> policy::Limit {
    policy::Limit {
        id,
        ipv4_mask: crate::address::prefix_mask(ipv4)[0],
        ipv6_mask: crate::address::prefix_mask(ipv6),
        ..policy::Limit::UNUSED
    }
}

fn message(id: u64, words: &[u64], family: u8) -> Vec<u8> {
    let mut message = id.to_le_bytes().to_vec();
    message.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    message.push(family);
    message
}

proptest! {
    #[test]
    fn equals_the_reference(key: [u64; 2], id: u64, v4: [u8; 4], v6: [u8; 16], prefix in 0_u8..=128) {
        let limit = limit(id, prefix.min(32), prefix);
        let source = Address::v4(v4);
        let words = [source.high & limit.ipv4_mask];
        prop_assert_eq!(hash(key, &limit, &source), reference(key, &message(id, &words, 4)));

        let source = Address::v6(v6);
        let words = [source.high & limit.ipv6_mask[0], source.low & limit.ipv6_mask[1]];
        let words = if prefix <= 64 { &words[..1] } else { &words[..] };
        prop_assert_eq!(hash(key, &limit, &source), reference(key, &message(id, words, 6)));
    }
}

#[test]
fn a_prefix_is_one_key_and_families_are_apart() {
    let key = [3, 4];
    let limit = limit(1, 24, 48);
    let v6 = |last| Address::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    assert_eq!(hash(key, &limit, &v6(1)), hash(key, &limit, &v6(2)));
    assert_eq!(
        hash(key, &limit, &Address::v4([10, 0, 0, 1])),
        hash(key, &limit, &Address::v4([10, 0, 0, 9]))
    );
    let keys = HashSet::from([
        hash(key, &limit, &Address::v4([0; 4])),
        hash(key, &limit, &Address::v6([0; 16])),
        hash(key, &self::limit(2, 24, 48), &Address::v4([0; 4])),
        hash(key, &self::limit(1, 24, 128), &Address::v6([0; 16])),
        hash([3, 5], &limit, &Address::v4([0; 4])),
    ]);
    assert_eq!(keys.len(), 5);
}
