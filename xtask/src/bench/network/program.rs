//! A program that is in the kernel already: its cost without a network, and the memory of its maps.

use std::{
    fs,
    os::fd::{AsFd as _, AsRawFd as _},
};

use anyhow::{Context as _, Result, ensure};
use aya::{
    TestRun as _, TestRunOptions,
    maps::MapInfo,
    programs::{ProgramInfo, Xdp, loaded_programs},
};
use aya_obj::programs::XdpAttachType;

use super::report::PerPacket;
use crate::bench::report::Summary;

/// What the maps of a program take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// All maps, in bytes, as the kernel accounts for them (exactly, from Linux 6.4 on).
    pub(super) total: u64,
    /// The elements of the map that holds the buckets, in bytes.
    pub(super) buckets: u64,
}

/// The program with this number in the kernel.
fn by_id(id: u32) -> Result<ProgramInfo> {
    loaded_programs()
        .find_map(|info| match info {
            Ok(info) if info.id() != id => None,
            found_or_failed => Some(found_or_failed),
        })
        .with_context(|| format!("program {id} is gone"))?
        .context("failed to list the kernel's programs")
}

/// What one run of the program costs on `frame`: the median of several test runs.
///
/// The kernel gives the mean of a test run in whole nanoseconds.
pub(super) fn test_run(program: &Xdp, frame: &[u8]) -> Result<PerPacket> {
    const REPETITIONS: u32 = 1_000_000;
    const RUNS: usize = 5;

    let mut costs = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let result = program
            .test_run(TestRunOptions { data_in: Some(frame), repeat: REPETITIONS, ..TestRunOptions::new() })
            .context("failed to test-run the program")?;
        costs.push(f64::from(result.duration.subsec_nanos()));
    }
    let Summary { median: ns_per_packet, .. } = Summary::of(&costs).context("no test run was made")?;
    Ok(PerPacket { ns_per_packet })
}

/// A handle on a program by the kernel's number of it, for test runs.
pub(super) fn open(id: u32) -> Result<Xdp> {
    Xdp::from_program_info(by_id(id)?, "benchmarked".into(), XdpAttachType::Interface)
        .context("failed to open the attached program")
}

/// The memory of all maps that the program refers to.
pub(super) fn memory(id: u32) -> Result<Memory> {
    let ids = by_id(id)?.map_ids()?.context("the kernel does not tell which maps a program uses")?;
    let mut memory = Memory::default();
    for id in ids {
        let map = MapInfo::from_id(id).with_context(|| format!("failed to look at map {id}"))?;
        memory.total += accounted(&map)?;
        if map.name_as_str() == Some("buckets") {
            memory.buckets = u64::from(map.value_size()) * u64::from(map.max_entries());
        }
    }
    ensure!(memory.buckets > 0, "program {id} has no map named buckets");
    Ok(memory)
}

fn accounted(map: &MapInfo) -> Result<u64> {
    let fd = map.fd()?;
    let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
        .with_context(|| format!("{path} shows no memlock"))
}
