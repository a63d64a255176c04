//! A rules file, loaded into the kernel with private state, to be asked what becomes of packets.

use std::{fmt::Display, path::Path};

use aya::maps::Array;
use ratelimit::{
    config::{
        self,
        policy::{Network, Sources},
    },
    network::{
        compile::{Compiled, Slots, compile},
        counters::{CounterMaps, Counters, Tally},
        program::{Clock, Options, Program, StateMaps, Verdict},
        state::monotonic_nanos,
    },
};
use ratelimit_common::{block_table, bucket_table::WAYS};

use super::frame::Packet;

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MILLISECOND;
pub(crate) const HOUR: u64 = 3600 * SECOND;
pub(crate) const DAY: u64 = 24 * HOUR;

/// Buckets where the rules file does not say how many: enough, and loaded faster than the default million.
const CAPACITY: u32 = 1024;

/// Addresses for which there is a table of blocks.
const BLOCKS: u32 = 1024;

pub(crate) struct Limiter {
    pub(crate) compiled: Compiled,
    pub(crate) program: Program,
}

/// What a flow-style `network:` section means.
pub(crate) fn network(yaml: &str) -> Network {
    let text = format!("network: {{ {yaml} }}\n");
    match config::parse(text.as_bytes(), Path::new("rules.yaml")) {
        Ok(loaded) => loaded.config.network.expect("it has the section"),
        Err(failure) => panic!("{failure}\n{text}"),
    }
}

/// Private state maps for a policy.
pub(crate) fn state(network: &Network) -> StateMaps {
    let given = network.sources.capacity;
    let capacity = if given == Sources::default().capacity { CAPACITY } else { given };
    let block_sets = block_table::sets_for(BLOCKS);
    StateMaps { pins: None, capacity, block_sets, hash_key: [1, 2], epoch: monotonic_nanos() }
}

// === impl Limiter ===

impl Limiter {
    /// On the virtual clock. `yaml` is a `network:` section in flow style, without its braces.
    pub(crate) fn new(yaml: &str) -> Self {
        Self::load(&network(yaml), Clock::Replay)
    }

    pub(crate) fn load(network: &Network, options: impl Into<Options>) -> Self {
        Self::over(network, &state(network), options)
    }

    pub(crate) fn over(network: &Network, state: &StateMaps, options: impl Into<Options>) -> Self {
        let names = network.rules.iter().map(|rule| rule.name.as_str());
        let compiled = compile(network, &Slots::assign(&Slots::default(), names).0)
            .unwrap_or_else(|error| panic!("{error}"));
        let program = Program::load(&compiled, state, options).unwrap_or_else(|error| panic!("{error}"));
        Self { compiled, program }
    }

    /// Runs a frame whose length on the wire is its own.
    pub(crate) fn frame(&mut self, frame: &[u8], at: u64) -> Verdict {
        self.on_wire(frame, u32::try_from(frame.len()).expect("it is short"), at)
    }

    pub(crate) fn on_wire(&mut self, frame: &[u8], length: u32, at: u64) -> Verdict {
        self.program.test_run(frame, length, at).unwrap_or_else(|error| panic!("{error}: {frame:02x?}"))
    }

    /// What becomes of a packet at time zero, such as "drop denied".
    pub(crate) fn say(&mut self, packet: &Packet) -> String {
        self.say_frame(&packet.frame())
    }

    pub(crate) fn say_frame(&mut self, frame: &[u8]) -> String {
        self.say_at(frame, 0)
    }

    /// What becomes of a frame.
    pub(crate) fn say_at(&mut self, frame: &[u8], at: u64) -> String {
        let verdict = self.frame(frame, at);
        format!("{} {}", if verdict.dropped { "drop" } else { "pass" }, verdict.reason.name())
    }

    /// The rule that a packet meets at time zero.
    pub(crate) fn rule(&mut self, packet: &Packet) -> Option<String> {
        let index = self.frame(&packet.frame(), 0).rule?;
        Some(self.compiled.descriptions[index].name.clone())
    }

    /// How many of `count` equal packets pass, all at the same time.
    pub(crate) fn passing(&mut self, packet: &Packet, count: usize, at: u64) -> usize {
        let frame = packet.frame();
        (0..count).filter(|_| !self.frame(&frame, at).dropped).count()
    }

    /// How many packets pass when one comes every `gap` nanoseconds from `from` until before `to`.
    pub(crate) fn passing_between(&mut self, packet: &Packet, from: u64, to: u64, gap: u64) -> u64 {
        let frame = packet.frame();
        let mut passed = 0;
        let mut at = from;
        while at < to {
            passed += u64::from(!self.frame(&frame, at).dropped);
            at += gap;
        }
        passed
    }

    pub(crate) fn counters(&self) -> Counters {
        let maps = CounterMaps::of(&self.program).expect("the program has counters");
        maps.read(&self.compiled.descriptions).expect("they can be read")
    }

    /// How often an event was counted.
    pub(crate) fn event(&self, name: &str) -> u64 {
        let counters = self.counters();
        counters.events.iter().find(|event| event.event == name).expect("it exists").count
    }

    /// What was passed and shed for a reason.
    pub(crate) fn reason(&self, name: &str) -> (Tally, Tally) {
        let counters = self.counters();
        let count = counters.reasons.iter().find(|count| count.reason == name).expect("it exists");
        (count.passed, count.shed)
    }

    /// Ways of the table that some key has claimed.
    pub(crate) fn claimed(&self) -> usize {
        let map = self.program.map("buckets").expect("the program has buckets");
        let buckets = Array::<_, [u64; 2 * WAYS]>::try_from(map).expect("sets of four ways");
        let sets = (0..buckets.len()).map(|set| buckets.get(&set, 0).expect("it can be read"));
        sets.map(|set| set[..WAYS].iter().filter(|tag| **tag != 0).count()).sum()
    }
}

/// Asserts that `passed` lies within `[rate * t, rate * t + burst]` to a tenth of a percent, and one packet
/// for where the edges fall.
#[track_caller]
pub(crate) fn assert_held(passed: u64, refill: f64, burst: f64, what: impl Display) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let passed = passed as f64;
    let (low, high) = (refill * 0.999 - 1.0, (refill + burst) * 1.001 + 1.0);
    assert!((low..=high).contains(&passed), "{what}: {passed} passed, expected {low} to {high}");
}
