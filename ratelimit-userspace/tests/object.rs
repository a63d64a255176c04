//! The embedded object is the one that this build expects. Parses it only: no privilege, no kernel.

use std::mem::size_of;

use aya_obj::{
    Map, Object, ProgramSection,
    generated::bpf_map_type::{
        self, BPF_MAP_TYPE_ARRAY as ARRAY, BPF_MAP_TYPE_HASH as HASH, BPF_MAP_TYPE_LPM_TRIE as LPM_TRIE,
        BPF_MAP_TYPE_LRU_HASH as LRU_HASH, BPF_MAP_TYPE_PERCPU_ARRAY as PERCPU_ARRAY,
        BPF_MAP_TYPE_PROG_ARRAY as PROG_ARRAY, BPF_MAP_TYPE_RINGBUF as RING_BUFFER,
    },
};
use ratelimit::network::{program::OBJECT, state::STATE_MAPS};
use ratelimit_common::{
    block_table,
    blocks::{Prefix, RULE_CAPACITY},
    overrides::{self, Client, Override},
    packet::Parsed,
    policy::{MAX_COUNTER_SLOTS, MAX_RULE_BUCKETS, Rule, ports, prefilter},
    record::{Event, Reason, ReasonCounters, Replay, RuleCounters},
    sample::{Budget, RING, Source, TALKERS, Talker},
    sampler::Sampler,
};

/// `BPF_F_MMAPABLE` of linux/bpf.h.
const MMAPABLE: u32 = 1 << 10;
/// `BPF_F_NO_PREALLOC`: the kernel refuses a trie without it.
const NO_PREALLOC: u32 = 1;

const RULE_BLOCK_SETS: usize = block_table::sets_for(RULE_CAPACITY) as usize;

#[derive(Clone, Copy)]
struct Expected {
    name: &'static str,
    kind: bpf_map_type,
    key: usize,
    value: usize,
    flags: u32,
    /// `None` when the loader sets it, or lowers it.
    entries: Option<usize>,
}

const fn array(name: &'static str, value: usize, entries: Option<usize>) -> Expected {
    Expected { name, kind: ARRAY, key: 4, value, flags: 0, entries }
}

const fn per_cpu(name: &'static str, value: usize, entries: usize) -> Expected {
    Expected { name, kind: PERCPU_ARRAY, key: 4, value, flags: 0, entries: Some(entries) }
}

const fn trie(name: &'static str, octets: usize) -> Expected {
    Expected { name, kind: LPM_TRIE, key: 4 + octets, value: 4, flags: NO_PREALLOC, entries: None }
}

const fn mmapable(array: Expected) -> Expected {
    Expected { flags: MMAPABLE, ..array }
}

fn expected() -> Vec<Expected> {
    let chunk = prefilter::CHUNK_WORDS * size_of::<u64>();
    vec![
        mmapable(array("buckets", 64, None)),
        mmapable(array("rule_buckets", 64, Some(MAX_RULE_BUCKETS))),
        per_cpu("rule_counters", size_of::<RuleCounters>(), MAX_COUNTER_SLOTS),
        per_cpu("reason_counters", size_of::<ReasonCounters>(), Reason::ALL.len()),
        per_cpu("events", size_of::<u64>(), Event::ALL.len()),
        mmapable(array("blocks", 64, None)),
        mmapable(array("block_details", 32, None)),
        mmapable(array("rule_blocks", 64, Some(RULE_BLOCK_SETS))),
        mmapable(array("rule_block_details", 32, Some(8 * RULE_BLOCK_SETS))),
        mmapable(array("offenders", 64, Some(2048))),
        Expected { value: size_of::<Prefix>(), entries: Some(1 << 22), ..trie("block_prefixes_v4", 4) },
        Expected { value: size_of::<Prefix>(), entries: Some(1 << 22), ..trie("block_prefixes_v6", 16) },
        mmapable(array("block_filter_v4", chunk, Some(prefilter::CHUNKS as usize))),
        mmapable(array("block_filter_v6", chunk, Some(prefilter::CHUNKS as usize))),
        Expected {
            name: "overrides",
            kind: HASH,
            key: size_of::<Client>(),
            value: size_of::<Override>(),
            flags: NO_PREALLOC,
            entries: Some(overrides::CAPACITY),
        },
        mmapable(array("runtime", 64, Some(1))),
        per_cpu("sampler", size_of::<Sampler>(), 1),
        per_cpu("sample_budget", size_of::<Budget>(), Reason::ALL.len()),
        Expected { name: "samples", kind: RING_BUFFER, key: 0, value: 0, flags: 0, entries: Some(RING) },
        Expected {
            name: "talkers",
            kind: LRU_HASH,
            key: size_of::<Source>(),
            value: size_of::<Talker<u64>>(),
            flags: 0,
            entries: Some(TALKERS),
        },
        // Only the program itself looks into this one.
        per_cpu("scratch", size_of::<Parsed>(), 1),
        Expected { kind: PROG_ARRAY, ..array("next", 4, Some(1)) },
        array("rules", size_of::<Rule>(), None),
        array("direct_masks", size_of::<u64>(), None),
        array("range_classes", 65_536, None),
        array("range_masks", size_of::<u64>(), None),
        array("address_masks", size_of::<u64>(), None),
        trie("sources_v4", 4),
        trie("sources_v6", 16),
        trie("destinations_v4", 4),
        trie("destinations_v6", 16),
        trie("listed_v4", 4),
        trie("listed_v6", 16),
        array("management", ports::WORDS * size_of::<u64>(), None),
        array("prefilter_v4", chunk, None),
        array("prefilter_v6", chunk, None),
        Expected { name: "AYA_LOGS", kind: RING_BUFFER, key: 0, value: 0, flags: 0, entries: Some(1 << 17) },
        array("replay", size_of::<Replay>(), Some(1)),
    ]
}

fn object() -> Object {
    Object::parse(OBJECT).expect("the embedded object is a BPF object")
}

#[test]
fn every_map_has_the_layout_of_its_type() {
    let object = object();
    for Expected { name, kind, key, value, flags, entries } in expected() {
        let map = object.maps.get(name).unwrap_or_else(|| panic!("there is no map `{name}`"));
        let sizes = (map.map_type(), map.key_size() as usize, map.value_size() as usize, map.map_flags());
        assert_eq!(sizes, (kind as u32, key, value, flags), "type, key, value and flags of `{name}`");
        if let Some(entries) = entries {
            assert_eq!(map.max_entries() as usize, entries, "entries of `{name}`");
        }
    }
}

#[test]
fn there_are_no_other_maps() {
    let expected: Vec<_> = expected().iter().map(|map| map.name).collect();
    let object = object();
    for (name, map) in &object.maps {
        // Sections such as .rodata, which holds the constants, are maps of no name of ours.
        if !name.starts_with('.') {
            assert!(expected.contains(&name.as_str()), "nobody fills `{name}`");
            // One legacy map keeps libbpf and bpftool from loading the object.
            assert!(matches!(map, Map::Btf(_)), "`{name}` is not described by BTF");
        }
    }
    assert!(STATE_MAPS.iter().all(|map| expected.contains(map)));
}

#[test]
fn the_program_takes_frames_of_several_buffers() {
    let object = object();
    let names: Vec<_> = object.programs.keys().collect();
    assert_eq!(names, ["ratelimit"]);
    let section = &object.programs["ratelimit"].section;
    assert!(matches!(section, ProgramSection::Xdp { frags: true, .. }), "{section:?}");
}

#[test]
fn every_constant_can_be_set() {
    const WORD: &[u8] = &[0; 8];
    for (name, zero) in [
        ("STAGES", WORD),
        ("HASH_KEY_0", WORD),
        ("HASH_KEY_1", WORD),
        ("EPOCH", WORD),
        ("SET_MASK", WORD),
        ("WHEN_FULL", &WORD[..4]),
    ] {
        // Fails when there is no such symbol, and when its size is another.
        let result = object().patch_map_data([(name, (zero, true))].into());
        assert!(result.is_ok(), "{name}: {result:?}");
    }
}
