//! A rules file in the kernel over pinned state, and the blocks in it, all on one virtual clock.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use ratelimit::config::policy::Network;
use ratelimit::network::{
    blocks::{Block, Blocks, BlocksError, Change, NewBlock, Now, Origin},
    compile::{Compiled, Slots, compile},
    program::{Clock, OBJECT, Program, StateMaps},
    state::{Lock, StateDir},
};
use ratelimit_common::bucket_table::sets_for;
use xtask::lab::BpfFs;

use crate::{
    frame::Packet,
    limiter::{Limiter, SECOND, network},
};

/// Buckets that the table is for.
const CAPACITY: u32 = 1024;

/// What the wall clock shows when the virtual one is at zero.
pub(super) const BOOT: Duration = Duration::from_hours(500_000);

pub(super) struct Host {
    pub(super) limiter: Limiter,
    pub(super) blocks: Blocks,
    pub(super) state: StateDir,
    pub(super) clock: Arc<AtomicU64>,
    pub(super) network: Network,
    pub(super) compiled: Compiled,
    _lock: Lock,
    _bpffs: BpfFs,
}

// === impl Host ===

impl Host {
    pub(super) fn new(yaml: &str) -> Self {
        Self::with_stages(yaml, 0)
    }

    /// With bits that the policy does not ask for.
    pub(super) fn with_stages(yaml: &str, stages: u64) -> Self {
        let bpffs = BpfFs::mount().expect("a BPF file system");
        let state = StateDir::new(bpffs.path().join("ratelimit"));
        let lock = state.open().expect("nobody has it");
        let network = network(yaml);
        let names = network.rules.iter().map(|rule| rule.name.as_str());
        let mut compiled = compile(&network, &Slots::assign(&Slots::default(), names).0).expect("a policy");
        compiled.stages |= stages;
        let clock = Arc::new(AtomicU64::new(0));
        let limiter = load(&state, &compiled, None);
        let blocks = open(&state, &clock);
        let mut host = Self { limiter, blocks, state, clock, network, compiled, _lock: lock, _bpffs: bpffs };
        host.at(1000 * SECOND);
        host
    }

    /// Loads another generation over the same state, with so many sets of blocks if they have changed.
    pub(super) fn reload(&mut self, block_sets: Option<u32>) {
        self.limiter = load(&self.state, &self.compiled, block_sets);
    }

    /// Opens the blocks again.
    pub(super) fn reopen(&mut self) {
        self.blocks = open(&self.state, &self.clock);
    }

    /// Sets the clock.
    pub(super) fn at(&mut self, nanos: u64) {
        self.clock.store(nanos, SeqCst);
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.load(SeqCst)
    }

    /// Blocks for so many seconds, or for good if that is 0.
    pub(super) fn block(&mut self, prefix: &str, seconds: u64) -> Change {
        self.try_block(prefix, seconds, "").unwrap_or_else(|error| panic!("{prefix}: {error}"))
    }

    pub(super) fn try_block(
        &mut self,
        prefix: &str,
        seconds: u64,
        reason: &str,
    ) -> Result<Change, Box<BlocksError>> {
        Ok(self.blocks.block(&new(prefix, seconds, reason))?)
    }

    pub(super) fn unblock(&mut self, prefix: &str) -> bool {
        self.blocks.unblock(net(prefix)).expect("it can be removed")
    }

    /// What becomes of a packet now, such as "drop blocked".
    pub(super) fn say(&mut self, packet: &Packet) -> String {
        let now = self.now();
        self.limiter.say_at(&packet.frame(), now)
    }

    /// The blocks as lines, sorted.
    pub(super) fn list(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.blocks.list().expect("they can be read").iter().map(words).collect();
        lines.sort();
        lines
    }

    /// The blocks that hold for an address.
    pub(super) fn find(&self, address: &str) -> Vec<String> {
        let found = self.blocks.find(address.parse().expect("an address")).expect("they can be read");
        found.iter().map(words).collect()
    }
}

fn load(state: &StateDir, compiled: &Compiled, block_sets: Option<u32>) -> Limiter {
    let sets = u32::try_from(sets_for(CAPACITY)).expect("it is small");
    let mut adoption = state.adopt(OBJECT, sets, &BTreeSet::new()).unwrap_or_else(|error| panic!("{error}"));
    let maps = StateMaps {
        pins: Some(state.state()),
        capacity: CAPACITY,
        block_sets: block_sets.unwrap_or(adoption.block_sets),
        hash_key: adoption.table.hash_key,
        epoch: adoption.table.epoch,
    };
    let program = Program::load(compiled, &maps, Clock::Replay).unwrap_or_else(|error| panic!("{error}"));
    adoption.commit().expect("it can be recorded");
    Limiter { compiled: compiled.clone(), program }
}

fn open(state: &StateDir, clock: &Arc<AtomicU64>) -> Blocks {
    let clock = Arc::clone(clock);
    let now = move || {
        let monotonic = clock.load(SeqCst);
        Now { monotonic, wall: wall(monotonic) }
    };
    Blocks::open_with(state, now).unwrap_or_else(|error| panic!("{error}"))
}

fn wall(monotonic: u64) -> SystemTime {
    UNIX_EPOCH + BOOT + Duration::from_nanos(monotonic)
}

pub(super) fn new(prefix: &str, seconds: u64, reason: &str) -> NewBlock {
    let duration = (seconds > 0).then(|| Duration::from_secs(seconds));
    NewBlock { prefix: net(prefix), duration, reason: reason.to_owned() }
}

/// An address, or a prefix, which may have host bits.
pub(super) fn net(text: &str) -> IpNet {
    let address = || text.parse::<std::net::IpAddr>().map(IpNet::from);
    text.parse().ok().or_else(|| address().ok()).expect("a prefix")
}

/// A block, with its times on the virtual clock in seconds.
fn words(block: &Block) -> String {
    let Block { prefix, until, since, reason, origin } = block;
    let seconds = |time: &SystemTime| {
        let seconds = time.duration_since(UNIX_EPOCH).expect("later").as_secs();
        seconds.cast_signed() - BOOT.as_secs().cast_signed()
    };
    let until = until.as_ref().map_or_else(|| "ever".to_owned(), |until| seconds(until).to_string());
    let origin = match origin {
        Origin::Command => String::new(),
        Origin::Rule(rule) => format!(" by rule `{rule}`"),
    };
    format!("{prefix} {}..{until} {reason}{origin}", seconds(since)).trim_end().to_owned()
}
