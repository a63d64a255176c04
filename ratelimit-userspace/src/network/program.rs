//! One generation of the XDP program: the embedded object, loaded with its own policy maps and constants,
//! over state maps that are pinned and shared, or private to it.

mod fill;
mod share;

#[cfg(test)]
pub(super) mod tests;

use std::{error::Error, fmt, io, iter, path::PathBuf, time::Duration};

use aya::{
    Ebpf, EbpfError, EbpfLoader, TestRun as _, TestRunOptions, include_bytes_aligned,
    maps::{Array, Map, MapData, MapError, ProgramArray},
    pin::PinError,
    programs::{ProgramError, ProgramFd, Xdp},
};
use ratelimit_common::{
    block_table::WAYS,
    bucket_table::sets_for,
    policy::{direct, prefilter, range, stage},
    record::{Reason, Replay},
};
use rustix::io::Errno;

use self::share::Shared;
use super::{
    compile::Compiled,
    next,
    state::{self, STATE_MAPS},
    trace,
};

/// The BPF object, as `cargo xtask build` made it.
pub static OBJECT: &[u8] = include_bytes_aligned!(env!("RATELIMIT_BPF_OBJECT"));

/// The program's name in the object.
pub(super) const NAME: &str = "ratelimit";

// linux/bpf.h, enum xdp_action.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// The state maps that a generation works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateMaps {
    /// The directory in which they are pinned by name, or are to be; it exists, and what is pinned there
    /// has the layout of this build, because opening a pin checks nothing. What is staged there goes before
    /// what a generation before still uses. `None`: fresh ones that nobody
    /// else sees.
    pub pins: Option<PathBuf>,
    /// Buckets of addresses that the table is to hold.
    pub capacity: u32,
    /// Sets in the operator's table of blocked addresses: as many as the pinned one has.
    pub block_sets: u32,
    /// The key of the table's hash, drawn once with the table.
    pub hash_key: [u64; 2],
    /// `CLOCK_MONOTONIC` in nanoseconds when the table was made.
    pub epoch: u64,
}

/// Where the program has the time from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's monotonic clock.
    Kernel,
    /// Each [`Program::test_run`] says what time it is. Such a program is for no interface.
    Replay,
}

/// How a generation is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where it has the time from.
    pub clock: Clock,
    /// Packets are sampled: see [`ratelimit_common::sampler`].
    pub sampling: bool,
    /// Verdicts are told one by one: see [`super::trace`].
    pub trace: bool,
}

/// A loaded generation. Dropping it detaches the links that it still owns.
pub struct Program {
    ebpf: Ebpf,
    /// The exchange map of a program on [`Clock::Replay`].
    replay: Option<Array<MapData, Replay>>,
}

/// What the program says of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// It was dropped.
    pub dropped: bool,
    /// Why.
    pub reason: Reason,
    /// The index of the rule that it met.
    pub rule: Option<usize>,
    /// The index of the limit that refused it, among those of the rule.
    pub limit: Option<usize>,
    /// It passes only because something monitors.
    pub would_drop: bool,
    /// A header lies beyond the data that was given.
    pub cut: bool,
}

/// Why a generation does not load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The object cannot be read, or the kernel refuses its maps.
    #[error("failed to create the BPF maps{}", hint(source))]
    Create {
        /// What aya or the kernel says.
        source: EbpfError,
    },
    /// A map does not take its contents.
    #[error("failed to fill the BPF map `{map}`{}", hint(source))]
    Fill {
        /// The map's name.
        map: &'static str,
        /// What aya or the kernel says.
        source: MapError,
    },
    /// A map cannot be pinned.
    #[error("failed to pin the BPF map `{map}`")]
    Pin {
        /// The map's name.
        map: &'static str,
        /// What aya or the kernel says.
        source: PinError,
    },
    /// The object lacks a map or the program, or has it with another type.
    #[error("the embedded BPF object has no {kind} `{name}` as this build needs it; run: cargo xtask build")]
    Object {
        /// Map or program.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The verifier refuses the program.
    #[error("the kernel refuses the program: {io_error}{}\n{log}", verifier_hint(io_error))]
    Verifier {
        /// The error of `BPF_PROG_LOAD`. Not a source: it is told above, before the long log.
        io_error: io::Error,
        /// All that the verifier said.
        log: String,
    },
    /// The kernel refuses the program before it comes to the verifier.
    #[error("failed to load the program{}", hint(source))]
    Program {
        /// What aya or the kernel says.
        source: ProgramError,
    },
}

/// Why a packet could not be run through the program.
#[derive(Debug, thiserror::Error)]
pub enum TestRunError {
    /// `BPF_PROG_TEST_RUN` fails.
    #[error("failed to run a frame of {length} bytes through the program{}", hint(source))]
    Run {
        /// The length of the data.
        length: usize,
        /// What the kernel says.
        source: ProgramError,
    },
    /// The exchange map cannot be read or written.
    #[error("failed to exchange a frame's details with the program")]
    Exchange(#[from] MapError),
    /// The program was loaded with [`Clock::Kernel`].
    #[error("the program runs on the kernel's clock: it tells no details of a frame")]
    NoReplay,
    /// The program answered what it never does: it is not the one that this build embeds.
    #[error("the program answered with action {action} and reason {reason}, which it never does")]
    Answer {
        /// The XDP action.
        action: u32,
        /// The number of the reason.
        reason: u32,
    },
}

// === impl Program ===

impl Program {
    /// Loads a new generation. It is attached to nothing, and the state maps are as before, except that
    /// those which were not pinned yet are.
    pub fn load(
        compiled: &Compiled,
        maps: &StateMaps,
        options: impl Into<Options>,
    ) -> Result<Self, LoadError> {
        let Options { clock, sampling, trace } = options.into();
        let StateMaps { pins, capacity, block_sets, hash_key: [hash_key_0, hash_key_1], epoch } = maps;
        let stages = match clock {
            Clock::Kernel => compiled.stages,
            // What passes is not another program's affair.
            Clock::Replay => compiled.stages & !stage::NEXT | stage::REPLAY,
        };
        let stages = if sampling { stages | stage::SAMPLING } else { stages };
        // Capacities end far below the 2^33 for which the sets would not fit.
        let sets = u32::try_from(sets_for(*capacity)).unwrap_or(u32::MAX);
        let set_mask = u64::from(sets) - 1;

        let mut loader = EbpfLoader::new();
        loader
            .override_global("STAGES", &stages, true)
            .override_global("WHEN_FULL", &compiled.when_full, true)
            .override_global("HASH_KEY_0", hash_key_0, true)
            .override_global("HASH_KEY_1", hash_key_1, true)
            .override_global("EPOCH", epoch, true)
            .override_global("SET_MASK", &set_mask, true)
            .override_global("BLOCK_SETS", block_sets, true)
            .override_global("SOURCE_BITS_V4", &compiled.source_bits.v4, true)
            .override_global("SOURCE_BITS_V6", &compiled.source_bits.v6, true)
            .override_global(trace::LEVEL, if trace { &trace::DEBUG } else { &trace::OFF }, true)
            .map_max_entries("buckets", sets)
            .map_max_entries("blocks", *block_sets)
            .map_max_entries("block_details", block_sets.saturating_mul(WAYS));
        if !trace {
            loader.map_max_entries(trace::RING, trace::SMALLEST);
        }
        for (map, entries) in policy_entries(compiled) {
            loader.map_max_entries(map, entries);
        }
        if let Some(directory) = pins {
            for map in STATE_MAPS {
                let next = state::staged(directory, map);
                loader.map_pin_path(map, if next.exists() { next } else { directory.join(map) });
            }
        }
        let shared = pins.as_ref().map(|directory| share::look(directory, compiled)).unwrap_or_default();
        for Shared { map, path, .. } in shared.iter().filter(|shared| shared.found) {
            loader.map_pin_path(map, path.as_path());
        }
        let mut ebpf = loader.load(OBJECT).map_err(|source| LoadError::Create { source })?;
        fill::fill(&mut ebpf, compiled, &shared)?;
        share::pin(&ebpf, &shared)?;

        let program: &mut Xdp = ebpf
            .program_mut(NAME)
            .and_then(|program| program.try_into().ok())
            .ok_or(LoadError::Object { kind: "XDP program", name: NAME })?;
        program.load().map_err(|source| match source {
            ProgramError::LoadError { io_error, verifier_log } => {
                LoadError::Verifier { io_error, log: verifier_log.to_string() }
            }
            source => LoadError::Program { source },
        })?;
        // Only now: a map that is taken out before the program is loaded is closed to it.
        let replay = match clock {
            Clock::Kernel => None,
            Clock::Replay => {
                let map = ebpf.take_map("replay").and_then(|map| Array::try_from(map).ok());
                Some(map.ok_or(LoadError::Object { kind: "map", name: "replay" })?)
            }
        };
        Ok(Self { ebpf, replay })
    }

    /// The program, to attach it.
    pub fn xdp(&mut self) -> &mut Xdp {
        self.ebpf.program_mut(NAME).and_then(|program| program.try_into().ok()).expect("`load` found it")
    }

    /// All of it, for what takes maps out.
    pub(super) fn ebpf(&mut self) -> &mut Ebpf {
        &mut self.ebpf
    }

    /// One of its maps, by the name that it has in the object.
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.ebpf.map(name)
    }

    /// Lets the generation hand on what passes to another program, if its policy says so. The kernel compares
    /// the two.
    pub(super) fn set_next(&mut self, program: &ProgramFd) -> Result<(), MapError> {
        let map = self
            .ebpf
            .map_mut(next::NAME)
            .ok_or_else(|| MapError::InvalidName { name: next::NAME.to_owned() })?;
        ProgramArray::try_from(map)?.set(0, program, 0)
    }

    /// Runs one frame through a program on [`Clock::Replay`], by `BPF_PROG_TEST_RUN`. `frame` is what is
    /// readable of it, at least 14 bytes; `length` is its length on the wire and what it costs; `now` is
    /// in nanoseconds from the zero of the virtual clock.
    pub fn test_run(&mut self, frame: &[u8], length: u32, now: u64) -> Result<Verdict, TestRunError> {
        let request = Replay { now, length, rule: Replay::NONE, limit: Replay::NONE, ..Replay::default() };
        self.replay.as_mut().ok_or(TestRunError::NoReplay)?.set(0, request, 0)?;
        let (action, _) = self.run(frame, 1)?;
        let answer = self.replay.as_ref().ok_or(TestRunError::NoReplay)?.get(&0, 0)?;
        let index = |number| if number == Replay::NONE { None } else { Some(number as usize) };
        match (action, Reason::ALL.get(answer.reason as usize)) {
            (XDP_DROP | XDP_PASS, Some(&reason)) => Ok(Verdict {
                dropped: action == XDP_DROP,
                reason,
                rule: index(answer.rule),
                limit: index(answer.limit),
                would_drop: answer.would_drop != 0,
                cut: answer.cut != 0,
            }),
            (action, _) => Err(TestRunError::Answer { action, reason: answer.reason }),
        }
    }

    /// Runs one frame `repeat` times and returns the XDP action of the last and the mean time of all,
    /// which the kernel gives in whole nanoseconds.
    pub fn run(&mut self, frame: &[u8], repeat: u32) -> Result<(u32, Duration), TestRunError> {
        let options = TestRunOptions { data_in: Some(frame), repeat, ..TestRunOptions::default() };
        let result = self
            .xdp()
            .test_run(options)
            .map_err(|source| TestRunError::Run { length: frame.len(), source })?;
        Ok((result.return_value, result.duration))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ebpf, replay } = self;
        f.debug_struct("Program").field("ebpf", ebpf).field("on_replay", &replay.is_some()).finish()
    }
}

// === impl Options ===

impl From<Clock> for Options {
    /// What an interface gets on that clock: replayed packets are not sampled. Nothing is traced.
    fn from(clock: Clock) -> Self {
        Self { clock, sampling: clock == Clock::Kernel, trace: false }
    }
}

/// How many entries each policy map needs; those that the policy does not use have to have one.
fn policy_entries(compiled: &Compiled) -> impl Iterator<Item = (&'static str, u32)> {
    const DIRECT: u64 = stage::PROTOCOL | stage::TCP_FLAGS | stage::ICMP_TYPE | stage::FRAGMENT | stage::VLAN;
    let Compiled { stages, rules, range_classes, address_masks, sources, destinations, lists, .. } = compiled;
    let used = |used: u64, entries: u32| if stages & used != 0 { entries } else { 0 };
    let ranges = if range_classes.is_empty() { 0 } else { range::ROWS };
    let count = |entries: usize| u32::try_from(entries).unwrap_or(u32::MAX);
    [
        ("rules", count(rules.len())),
        ("direct_masks", used(DIRECT, direct::LEN)),
        ("range_classes", ranges),
        ("range_masks", ranges * range::MASKS),
        ("address_masks", count(address_masks.len())),
        ("sources_v4", count(sources.v4.len())),
        ("sources_v6", count(sources.v6.len())),
        ("destinations_v4", count(destinations.v4.len())),
        ("destinations_v6", count(destinations.v6.len())),
        ("listed_v4", count(lists.v4.len())),
        ("listed_v6", count(lists.v6.len())),
        ("management", count(lists.management.len())),
        ("prefilter_v4", used(stage::LISTS_V4, prefilter::CHUNKS)),
        ("prefilter_v6", used(stage::LISTS_V6, prefilter::CHUNKS)),
    ]
    .into_iter()
    .map(|(map, entries)| (map, entries.max(1)))
}

// === impl LoadError ===

impl LoadError {
    /// Whether it is the privilege that is missing.
    pub fn is_permission(&self) -> bool {
        let errno = match self {
            Self::Create { source } => errno(source),
            Self::Fill { source, .. } => errno(source),
            Self::Pin { source, .. } => errno(source),
            Self::Object { .. } => None,
            Self::Verifier { io_error, .. } => errno(io_error),
            Self::Program { source } => errno(source),
        };
        errno == Some(Errno::PERM)
    }
}

impl TestRunError {
    /// Whether it is the privilege that is missing.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Run { source, .. } if errno(source) == Some(Errno::PERM))
    }
}

/// The error number at the bottom of an error.
fn errno(error: &(dyn Error + 'static)) -> Option<Errno> {
    iter::successors(Some(error), |&error| error.source())
        .find_map(|error| Errno::from_io_error(error.downcast_ref::<io::Error>()?))
}

/// What an error of `BPF_PROG_LOAD` usually means: there, the same numbers have other causes.
fn verifier_hint(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::TOOBIG) => " (more paths than this kernel's verifier follows: a newer kernel may help)",
        Some(Errno::PERM | Errno::NOMEM) => hint(error),
        _ => "",
    }
}

/// What to do about an error that has a usual cause, as the rest of a sentence.
fn hint(error: &(dyn Error + 'static)) -> &'static str {
    match errno(error) {
        Some(Errno::PERM) => {
            " (it takes CAP_BPF and CAP_NET_ADMIN: run as root, or give both to the service)"
        }
        Some(Errno::NOMEM) => {
            " (no memory for the maps: lower `sources.capacity`, shorten the lists, or raise the memory limit \
             of the service)"
        }
        Some(Errno::TOOBIG) => {
            " (larger than the kernel allows: lower `sources.capacity` or shorten the lists)"
        }
        Some(Errno::NOSPC) => " (the map is full: shorten the lists)",
        _ => "",
    }
}
