//! The sending side: frames made in the kernel, faster than any socket could, from as many addresses as
//! asked for.
//!
//! `BPF_PROG_TEST_RUN` with live frames (Linux 5.18) runs the object `bench-sender` over a batch of
//! pages and redirects them to a veth device. What its full ring cannot take is dropped there, on the
//! sender's CPU: only the receiving side can tell how many frames arrived.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use aya::{
    Ebpf, EbpfLoader, TestRun as _, TestRunOptions,
    programs::{TestRunAttrs, Xdp},
};

use super::frame;
use crate::lab::{Interface, Link, Namespace, pin_thread};

/// The first source address, 10.0.0.0 as a number. A million follow, none of which is on a lab's link.
pub(super) const FIRST_SOURCE: u32 = 0x0a00_0000;

/// Frames a call of a flood: some tens of milliseconds, so that the end of a window is met closely.
const FRAMES_PER_CALL: u32 = 1 << 16;
/// The pace of a sweep: slow enough for every contender to take each frame, so that none is dropped before
/// a full ring. A call costs milliseconds whatever it sends, so there are few of them.
const SWEEP_INTERVAL_NANOS: u64 = 4_000;
/// Frames that share one run of the program's stack; the kernel's own default.
const BATCH: u32 = 64;

/// A loaded sender program, bound to one link and one number of sources.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    namespace: &'a Namespace,
    cpu: usize,
    sources: u32,
    program: Ebpf,
    sweeper: Ebpf,
    frame: Vec<u8>,
}

// === impl Sender ===

impl<'a> Sender<'a> {
    /// Loads the program `object` for frames over `link` from its client's end, by turns from the first
    /// `sources` addresses, sent by CPU `cpu`.
    pub(super) fn load(
        object: &Path,
        namespace: &'a Namespace,
        link: &Link,
        sources: u32,
        cpu: usize,
    ) -> Result<Self> {
        let Interface { index, .. } = link.client;
        let program = load(object, sources, index, 0)?;
        let sweeper = load(object, sources, index, SWEEP_INTERVAL_NANOS)?;
        let frame = frame::udp_v4(link, FIRST_SOURCE.into());
        Ok(Self { namespace, cpu, sources, program, sweeper, frame })
    }

    /// Sends as fast as the CPU can, for about `window`.
    pub(super) fn flood(&self, window: Duration) -> Result<()> {
        self.on_its_cpu(|| {
            let end = Instant::now() + window;
            while Instant::now() < end {
                run(&self.program, &self.frame, FRAMES_PER_CALL)?;
            }
            Ok(())
        })
    }

    /// Sends at least one frame from each source, at a pace that every receiver keeps up with.
    pub(super) fn sweep(&self) -> Result<()> {
        self.on_its_cpu(|| run(&self.sweeper, &self.frame, self.sources))
    }

    fn on_its_cpu(&self, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        self.namespace.run(|| {
            pin_thread(self.cpu)?;
            work()
        })
    }
}

/// Loads the sender program with a pause of `interval` nanoseconds between frames.
fn load(object: &Path, sources: u32, interface: u32, interval: u64) -> Result<Ebpf> {
    let mut program = EbpfLoader::new()
        .override_global("SOURCES", &sources, true)
        .override_global("FIRST", &FIRST_SOURCE, true)
        .override_global("INTERFACE", &interface, true)
        .override_global("INTERVAL", &interval, true)
        .load_file(object)
        .with_context(|| format!("failed to load {}", object.display()))?;
    let xdp: &mut Xdp = program
        .program_mut(PROGRAM)
        .with_context(|| format!("{} has no program {PROGRAM}", object.display()))?
        .try_into()?;
    xdp.load().with_context(|| format!("the kernel refuses {PROGRAM}"))?;
    Ok(program)
}

/// Runs it over `count` frames.
fn run(program: &Ebpf, frame: &[u8], count: u32) -> Result<()> {
    let program: &Xdp = program.program(PROGRAM).context("the sender is not loaded")?.try_into()?;
    program
        .test_run(TestRunOptions {
            data_in: Some(frame),
            repeat: count,
            attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
            ..TestRunOptions::new()
        })
        .context("failed to send live frames (Linux 5.18 or newer is needed)")?;
    Ok(())
}

/// The name of the program in its object.
const PROGRAM: &str = "bench_sender";
