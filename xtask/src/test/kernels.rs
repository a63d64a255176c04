//! `cargo xtask test --kernels`: level 5 of the ladder, what only other kernels can tell. Each boots in QEMU,
//! without hardware support if need be, into an initramfs that holds nothing but the tests: the program loads
//! and judges frames, the daemon starts, is killed and starts again; a kernel that is too old is refused.

mod debian;
mod guest;
mod initramfs;

use std::str::FromStr;

use anyhow::{Result, bail, ensure};

use super::Tally;
use crate::{build, setup, workspace::Workspace};

/// A kernel as Debian packages it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    /// What people call it.
    name: &'static str,
    /// The suite of Debian that has it.
    suite: &'static str,
    /// Whether the limiter supports it; else it must say that it does not.
    supported: bool,
}

const KERNELS: [Kernel; 4] = [
    Kernel { name: "5.10", suite: "bullseye", supported: false },
    Kernel { name: "6.1", suite: "bookworm", supported: true },
    Kernel { name: "6.12", suite: "trixie", supported: true },
    Kernel { name: "newest", suite: "sid", supported: true },
];

/// Runs the tests on these kernels, one after the other, whatever fails on the way; on all if none is named.
/// Of the tests only those whose names contain one of the filter's parts, if it has any.
pub(super) fn run(workspace: &Workspace, kernels: &[Kernel], filter: &[String]) -> Result<()> {
    setup::kernel_tools()?;
    build::objects(workspace)?;
    let kernels = if kernels.is_empty() { &KERNELS } else { kernels };
    let tests = initramfs::Tests::build(workspace)?;
    let mut total = Tally::default();
    let mut lines = Vec::new();
    for kernel in kernels {
        println!("\n== Linux {}", kernel.name);
        let files = debian::fetch(workspace, kernel)?;
        let initramfs = initramfs::make(workspace, &tests, &files, kernel, filter)?;
        let report = guest::boot(&files, &initramfs)?;
        lines.push(format!("Linux {} ({}): {report}", kernel.name, files.release));
        total += report.tally;
    }
    println!();
    for line in lines {
        println!("{line}");
    }
    ensure!(total.failed == 0, "tests failed");
    Ok(())
}

impl FromStr for Kernel {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        if let Some(kernel) = KERNELS.iter().find(|kernel| kernel.name == name) {
            return Ok(*kernel);
        }
        let names: Vec<_> = KERNELS.iter().map(|kernel| kernel.name).collect();
        bail!("there is no kernel {name}; there are {}", names.join(", "))
    }
}
