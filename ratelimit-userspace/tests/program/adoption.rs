//! What a start takes over from the generation before, of its own version and of others, and what an
//! interrupted one leaves to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use aya::maps::{Array, MapData, MapInfo};
use ratelimit::{
    config::policy::Network,
    network::{
        compile::{Slots, compile},
        description::Description,
        program::{Clock, OBJECT, Program},
        state::{Adoption, StateDir, StateError},
    },
};
use ratelimit_common::{bucket_table::sets_for, record::ABI_VERSION};
use xtask::lab::BpfFs;

use super::{frame::udp, limiter::network};

const CAPACITY: u32 = 1024;
const RULES: &str = "rules: [{ name: udp, limits: [{ per: source, rate: 1/h }, { per: rule, rate: 1/h }] }]";

/// A pin directory in a file system of its own.
struct Pins {
    state: StateDir,
    _bpffs: BpfFs,
}

/// A generation that is loaded and staged, but not recorded yet.
struct Change {
    adoption: Adoption,
    program: Program,
    id: u32,
}

// === impl Pins ===

impl Pins {
    fn new() -> Self {
        let bpffs = BpfFs::mount().expect("a BPF file system");
        let state = StateDir::new(bpffs.path().join("ratelimit"));
        drop(state.open().expect("the lock"));
        Self { state, _bpffs: bpffs }
    }

    fn own(&self) -> PathBuf {
        self.state.state()
    }

    fn version(&self, number: u32) -> PathBuf {
        self.state.root().join(format!("v{number}"))
    }

    /// Makes what is pinned here the pins of another version.
    fn as_version(&self, number: u32) -> PathBuf {
        let directory = self.version(number);
        fs::rename(self.own(), &directory).expect("a directory can be renamed");
        fs::create_dir(self.own()).expect("a directory");
        directory
    }

    fn adopt(&self, capacity: u32, attached: &[u32]) -> Result<Adoption, StateError> {
        let sets = u32::try_from(sets_for(capacity)).expect("few sets");
        self.state.adopt(OBJECT, sets, &attached.iter().copied().collect::<BTreeSet<_>>())
    }

    /// All that a start does before it attaches.
    fn begin(&self, capacity: u32, attached: &[u32]) -> Change {
        self.begin_with(&network(RULES), capacity, attached)
    }

    fn begin_with(&self, policy: &Network, capacity: u32, attached: &[u32]) -> Change {
        let adoption = self.adopt(capacity, attached).unwrap_or_else(|error| panic!("{error}"));
        let names = policy.rules.iter().map(|rule| rule.name.as_str());
        let (slots, fresh) = Slots::assign(&adoption.previous_slots(), names);
        adoption.zero_slots(&fresh).expect("slots can be zeroed");
        let compiled = compile(policy, &slots).expect("it is valid");
        let mut program = Program::load(&compiled, &adoption.maps(capacity), Clock::Kernel)
            .unwrap_or_else(|error| panic!("{error}"));
        let id = program.xdp().info().expect("it is loaded").id();
        let description =
            Description::new(Path::new("rules.yaml"), &[], policy, compiled.descriptions, slots, id);
        adoption.stage(program.xdp(), &description).expect("it can be staged");
        Change { adoption, program, id }
    }

    /// A whole start; the program's id.
    fn start(&self, capacity: u32, attached: &[u32]) -> u32 {
        self.begin(capacity, attached).succeed()
    }

    /// The lists that are pinned under their contents, with the ids of the maps.
    fn lists(&self) -> BTreeMap<String, u32> {
        maps(&self.own()).into_iter().filter(|(name, _)| name.starts_with("list-")).collect()
    }
}

// === impl Change ===

impl Change {
    /// It runs.
    fn succeed(self) -> u32 {
        let Self { mut adoption, program: _program, id } = self;
        adoption.commit().expect("it can be recorded");
        adoption.retire();
        id
    }

    /// As SIGKILL does: nothing is undone.
    fn kill(self) -> u32 {
        let Self { adoption, program: _program, id } = self;
        std::mem::forget(adoption);
        id
    }
}

fn map_id(path: &Path) -> u32 {
    MapInfo::from_pin(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).id()
}

fn maps(directory: &Path) -> BTreeMap<String, u32> {
    names(directory)
        .into_iter()
        .filter(|name| !name.starts_with("program") && !name.starts_with("policy"))
        .map(|name| (name.clone(), map_id(&directory.join(name))))
        .collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("a file").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

/// Puts a map of another layout in the place of a pinned one.
fn replace<const N: usize>(path: &Path) {
    fs::remove_file(path).expect("it is pinned");
    Array::<MapData, [u64; N]>::create(8, 0).expect("a map").pin(path).expect("a pin");
}

fn story(adoption: &Adoption) -> String {
    adoption.story().expect("something to say")
}

#[test]
#[ignore = "requires CAP_BPF"]
fn state_of_another_version_is_taken_over_whole() {
    for other in [ABI_VERSION - 1, ABI_VERSION + 1] {
        let pins = Pins::new();
        let running = pins.start(CAPACITY, &[]);
        let old = pins.as_version(other);
        let before = (names(&old), maps(&old));

        let Change { mut adoption, id, program: _program } = pins.begin(CAPACITY, &[running]);
        assert!(adoption.kept && !adoption.begins_anew() && !adoption.blocks_are_new);
        let told = format!("version {other} of the pinned state is taken over: kept: blocks, buckets");
        assert!(story(&adoption).starts_with(&told), "{}", story(&adoption));
        assert_eq!(adoption.previous_slots().get("udp"), Some(0));
        assert_eq!(adoption.running().map(|xdp| xdp.info().expect("a program").id()), Some(running));
        assert_eq!((names(&old), maps(&old)), before, "the old version stays until the new one runs");

        adoption.commit().expect("it can be recorded");
        assert_eq!((names(&old), maps(&old)), before);
        adoption.retire();
        assert!(!old.exists());
        assert_eq!(maps(&pins.own()), before.1, "the very maps");
        let described = Description::read(&pins.own()).expect("a description").expect("one");
        assert_eq!(described.program_id, id);
    }
}

#[test]
#[ignore = "requires CAP_BPF"]
fn a_failed_upgrade_leaves_the_other_version_alone() {
    let pins = Pins::new();
    let running = pins.start(CAPACITY, &[]);
    let old = pins.as_version(7);
    let before = (names(&old), maps(&old));
    drop(pins.begin(CAPACITY, &[running]).adoption);
    assert_eq!((names(&old), maps(&old)), before);
    assert_eq!(names(&pins.own()), Vec::<String>::new());
}

#[test]
#[ignore = "requires CAP_BPF"]
fn only_what_does_not_fit_begins_anew() {
    let pins = Pins::new();
    let running = pins.start(CAPACITY, &[]);
    let old = pins.as_version(7);
    replace::<3>(&old.join("events"));
    let before = maps(&old);
    let Change { adoption, program: _program, .. } = pins.begin(CAPACITY, &[running]);
    assert!(story(&adoption).ends_with("begin anew: counters"), "{}", story(&adoption));
    assert!(!adoption.blocks_are_new);
    let now = maps(&pins.own());
    let changed: Vec<_> = now.keys().filter(|name| before.get(*name) != now.get(*name)).collect();
    assert_eq!(changed, ["events"]);
}

#[test]
#[ignore = "requires CAP_BPF"]
fn blocks_stay_together_and_the_caller_is_told_that_they_are_lost() {
    let pins = Pins::new();
    let running = pins.start(CAPACITY, &[]);
    let old = pins.as_version(7);
    replace::<3>(&old.join("runtime"));
    let before = maps(&old);
    let Change { adoption, program: _program, .. } = pins.begin(CAPACITY, &[running]);
    assert!(adoption.blocks_are_new);
    assert!(story(&adoption).ends_with("begin anew: blocks"), "{}", story(&adoption));
    let now = maps(&pins.own());
    assert_ne!(now["blocks"], before["blocks"]);
    assert_ne!(now["block_prefixes_v4"], before["block_prefixes_v4"]);
    assert_eq!(now["buckets"], before["buckets"]);
}

#[test]
#[ignore = "requires CAP_BPF"]
fn without_the_key_neither_buckets_nor_blocks_are_of_use() {
    let pins = Pins::new();
    let running = pins.start(CAPACITY, &[]);
    let old = pins.as_version(7);
    replace::<4>(&old.join("table"));
    let before = maps(&old);
    let Change { adoption, program: _program, .. } = pins.begin(CAPACITY, &[running]);
    assert!(adoption.blocks_are_new);
    let now = maps(&pins.own());
    for name in ["table", "buckets", "rule_buckets", "blocks", "rule_blocks"] {
        assert_ne!(now[name], before[name], "{name}");
    }
    assert_eq!(now["rule_counters"], before["rule_counters"]);
}

#[test]
#[ignore = "requires CAP_BPF"]
fn without_the_counter_slots_counters_begin_anew() {
    for other in [false, true] {
        let pins = Pins::new();
        let running = pins.start(CAPACITY, &[]);
        let old = if other { pins.as_version(7) } else { pins.own() };
        let path = old.join("policy");
        fs::remove_file(&path).expect("it is pinned");
        Array::<MapData, [u8; 4096]>::create(1, 0).expect("a map").pin(&path).expect("a pin");
        let before = maps(&old);

        let Change { mut adoption, program: _program, .. } = pins.begin(CAPACITY, &[running]);
        let told = story(&adoption);
        assert!(told.contains("is of no use") && told.contains("begin anew: `per: rule` buckets"), "{told}");
        adoption.commit().expect("it can be recorded");
        let now = maps(&pins.own());
        for name in ["rule_counters", "rule_buckets"] {
            assert_ne!(now[name], before[name], "{name}");
        }
        for name in ["buckets", "table", "reason_counters", "blocks"] {
            assert_eq!(now[name], before[name], "{name}");
        }
    }
}

#[test]
#[ignore = "requires CAP_BPF"]
fn what_is_current_is_what_runs() {
    let pins = Pins::new();
    let (first, other) = (pins.start(CAPACITY, &[]), pins.version(7));
    fs::rename(pins.own(), &other).expect("a directory can be renamed");
    fs::create_dir(pins.own()).expect("a directory");
    // An upgrade that ended between its record and the removal of the old version.
    let Change { mut adoption, id, .. } = pins.begin(CAPACITY, &[first]);
    adoption.commit().expect("it can be recorded");
    drop(adoption);
    assert!(other.join("program").exists() && pins.own().join("program").exists());

    let again = pins.adopt(CAPACITY, &[id]).expect("it fits");
    assert!(!story(&again).contains("taken over"), "{}", story(&again));
    drop(again);
    assert!(pins.own().join("program").exists());
    // A rollback that was interrupted the same way: the other one runs.
    let back = pins.adopt(CAPACITY, &[first]).expect("it fits");
    assert!(story(&back).starts_with("version 7 "), "{}", story(&back));
    assert!(!pins.own().join("program").exists(), "what this version left is of no use any more");
    // Nothing is attached: what was loaded last counts.
    drop(back);
    let back = pins.adopt(CAPACITY, &[]).expect("it fits");
    assert!(story(&back).starts_with("version 7 "), "{}", story(&back));
}

#[test]
#[ignore = "requires CAP_BPF"]
fn a_start_that_was_killed_is_finished_if_its_program_runs_and_else_undone() {
    for runs in [false, true] {
        let pins = Pins::new();
        let first = pins.start(CAPACITY, &[]);
        let before = maps(&pins.own());
        let second = pins.begin(4 * CAPACITY, &[first]).kill();
        let staged = map_id(&pins.own().join("buckets-next"));
        assert_eq!(map_id(&pins.own().join("buckets")), before["buckets"], "the table that is used stays");

        let attached = if runs { second } else { first };
        let (capacity, buckets) = if runs { (4 * CAPACITY, staged) } else { (CAPACITY, before["buckets"]) };
        let next = pins.adopt(capacity, &[attached]).expect("it fits");
        assert_eq!(next.resized, None);
        assert_eq!(map_id(&pins.own().join("buckets")), buckets);
        assert_eq!(next.running().map(|xdp| xdp.info().expect("a program").id()), Some(attached));
        assert!(names(&pins.own()).iter().all(|name| !name.ends_with("-next")), "{:?}", names(&pins.own()));
    }
}

#[test]
#[ignore = "requires CAP_BPF"]
fn an_upgrade_that_was_killed_is_finished_by_whichever_version_starts_next() {
    let pins = Pins::new();
    let first = pins.start(CAPACITY, &[]);
    let old = pins.as_version(7);
    let before = maps(&old);
    let second = pins.begin(CAPACITY, &[first]).kill();
    // Half of the interfaces run the old program: the old version it is.
    let half = pins.adopt(CAPACITY, &[first, second]).expect("it fits");
    assert!(story(&half).starts_with("version 7 "), "{}", story(&half));
    drop(half);

    // All of them run the new one, and the version that is started is yet another.
    let second = pins.begin(CAPACITY, &[first]).kill();
    let third = pins.as_version(8);
    let next = pins.adopt(CAPACITY, &[second]).expect("it fits");
    assert!(story(&next).starts_with("version 8 "), "{}", story(&next));
    assert_eq!(maps(&pins.own())["buckets"], before["buckets"]);
    assert!(third.join("program").exists() && !third.join("program-next").exists());
}

#[test]
#[ignore = "requires CAP_BPF"]
fn another_size_is_laid_beside_and_a_failed_start_takes_it_away() {
    let pins = Pins::new();
    let first = pins.start(CAPACITY, &[]);
    let before = maps(&pins.own());
    let change = pins.begin(2 * CAPACITY, &[first]);
    assert_eq!(change.adoption.resized, Some((512, 1024)));
    drop(change.adoption);
    assert_eq!(maps(&pins.own()), before);

    pins.start(2 * CAPACITY, &[first]);
    let now = maps(&pins.own());
    let changed: Vec<_> = now.keys().filter(|name| before.get(*name) != now.get(*name)).collect();
    assert_eq!(changed, ["buckets"]);
}

/// A policy that denies so many addresses from 10.0.0.0 on, and as many IPv6 networks.
fn denying(count: u32) -> Network {
    let v4 = (0..count).map(|n| format!("10.{}.{}.0/25", n >> 8, n & 255));
    let v6 = (0..count).map(|n| format!("2001:db8:{n:x}::/48"));
    let deny = v4.chain(v6).map(|prefix| prefix.parse().expect("a prefix")).collect();
    Network { deny, ..network(RULES) }
}

fn is_denied(program: &mut Program, source: &str) -> bool {
    program.run(&udp(source).frame(), 1).expect("it runs").0 == 1
}

#[test]
#[ignore = "requires CAP_BPF"]
fn a_list_that_stays_is_shared_and_one_that_changes_is_made_beside_it() {
    let pins = Pins::new();
    let first = pins.begin_with(&denying(2000), CAPACITY, &[]).succeed();
    let before = pins.lists();
    let kinds: Vec<_> = before.keys().map(|name| name.rsplit_once('-').expect("a digest").0).collect();
    assert_eq!(kinds, ["list-listed_v4", "list-listed_v6", "list-prefilter_v4", "list-prefilter_v6"]);

    let mut same = pins.begin_with(&denying(2000), CAPACITY, &[first]);
    assert_eq!(pins.lists(), before, "the very maps, and no others");
    assert!(is_denied(&mut same.program, "10.7.207.1") && !is_denied(&mut same.program, "10.7.208.1"));
    let second = same.succeed();
    assert_eq!(pins.lists(), before);

    let mut other = pins.begin_with(&denying(2001), CAPACITY, &[second]);
    assert_eq!(pins.lists().len(), 8, "both are there as long as either may run");
    assert!(is_denied(&mut other.program, "10.7.208.1"));
    other.succeed();
    let after = pins.lists();
    assert!(after.len() == 4 && after.keys().all(|name| !before.contains_key(name)), "{after:?}");
}

#[test]
#[ignore = "requires CAP_BPF"]
fn a_change_that_fails_or_is_killed_leaves_the_lists_that_are_used() {
    let pins = Pins::new();
    let first = pins.begin_with(&denying(2000), CAPACITY, &[]).succeed();
    let before = pins.lists();
    drop(pins.begin_with(&denying(3000), CAPACITY, &[first]).adoption);
    assert_eq!(pins.lists(), before);

    pins.begin_with(&denying(3000), CAPACITY, &[first]).kill();
    assert_eq!(pins.lists().len(), 8);
    // They are complete, or they would not be there: the next start may use them.
    let mut next = pins.begin_with(&denying(3000), CAPACITY, &[first]);
    assert_eq!(pins.lists().len(), 8);
    assert!(is_denied(&mut next.program, "10.11.183.1") && !is_denied(&mut next.program, "10.11.184.1"));
    drop(next.adoption);
    pins.begin_with(&denying(2000), CAPACITY, &[first]).succeed();
    assert_eq!(pins.lists(), before);
}

#[test]
#[ignore = "requires CAP_BPF"]
fn an_upgrade_shares_lists_and_small_ones_are_not_pinned() {
    let pins = Pins::new();
    let first = pins.begin_with(&denying(2000), CAPACITY, &[]).succeed();
    let before = pins.lists();
    pins.as_version(7);
    let second = pins.begin_with(&denying(2000), CAPACITY, &[first]).succeed();
    assert_eq!(pins.lists(), before);
    pins.begin_with(&denying(500), CAPACITY, &[second]).succeed();
    assert_eq!(pins.lists(), BTreeMap::new());
}

#[test]
#[ignore = "requires CAP_BPF"]
fn something_else_under_the_name_of_a_list_is_not_used() {
    let pins = Pins::new();
    let first = pins.begin_with(&denying(2000), CAPACITY, &[]).succeed();
    for name in pins.lists().keys() {
        replace::<3>(&pins.own().join(name));
    }
    let mut next = pins.begin_with(&denying(2000), CAPACITY, &[first]);
    assert!(is_denied(&mut next.program, "10.7.207.1") && !is_denied(&mut next.program, "10.7.208.1"));
    next.succeed();
    assert_eq!(pins.lists(), BTreeMap::new(), "the program does not use it");
}
