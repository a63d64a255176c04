//! `cargo xtask setup`: brings what the other verbs need and says what it does.
//!
//! Packages are installed with apt, as root, on Debian and its derivatives only. Anywhere else the exact
//! commands are printed. bpf-linker comes from crates.io and goes below the target folder, so that
//! nothing of the user's home changes. Looking costs a few milliseconds, so every verb does it.

use std::{env, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::{
    exec, read,
    toolchain::{self, Compiler, Core, MINIMUM_RUSTC, RUSTC_VARIABLE, Search, find_program},
    workspace::Workspace,
};

/// Installs what is missing to build and test: compiler, bpf-linker, network tools.
#[derive(Args, Debug)]
pub struct Options {}

/// A program that a verb starts, and the Debian package it is in.
#[derive(Debug)]
struct Tool {
    program: &'static str,
    package: &'static str,
    reason: &'static str,
}

/// What the tests in network namespaces, the bench and the demo start.
const LAB_TOOLS: &[Tool] = &[
    Tool { program: "c++", package: "g++", reason: "compiles libFuzzer for the fuzz target" },
    Tool { program: "ip", package: "iproute2", reason: "makes namespaces, veth pairs, addresses" },
    Tool { program: "ethtool", package: "ethtool", reason: "turns on GRO, which native XDP on veth needs" },
    Tool { program: "ping", package: "iputils-ping", reason: "is the ICMP client of the tests" },
    Tool {
        program: "nsenter",
        package: "util-linux",
        reason: "enters a namespace and keeps the host's bpffs",
    },
    Tool { program: "bpftool", package: "bpftool", reason: "attaches a foreign program in the tests" },
    Tool { program: "nft", package: "nftables", reason: "is a contender in the bench" },
    Tool { program: "iptables", package: "iptables", reason: "is a contender in the bench" },
];

/// The Debian packages of a compiler with a prebuilt `core` for BPF.
const COMPILER_PACKAGES: &[&str] = &["rustc-web", "libstd-rust-web-dev-bpf"];

/// Installs whatever is missing and reports what is there.
pub fn run(workspace: &Workspace, Options {}: &Options) -> Result<()> {
    let compiler = compiler(workspace)?;
    lab_tools()?;
    let Compiler { rustc, core, release, llvm, bpf_linker, .. } = &compiler;
    let core = match core {
        Core::Prebuilt => "with a prebuilt core",
        Core::Source => "builds core from its sources",
    };
    println!("compiler: {} {release}, LLVM {llvm}, {core}", rustc.display());
    println!("linker: {} {bpf_linker}", linker_path(workspace).display());
    println!("tools: {}", LAB_TOOLS.iter().map(|tool| tool.program).collect::<Vec<_>>().join(", "));
    Ok(())
}

/// The compiler for the BPF object, with bpf-linker beside it; what is missing is installed.
pub fn compiler(workspace: &Workspace) -> Result<Compiler> {
    let compiler = match Compiler::search() {
        Search { compiler: Some(compiler), .. } => compiler,
        Search { compiler: None, rejected } => install_compiler(&rejected)?,
    };
    install_linker(workspace, &compiler)?;
    Ok(compiler)
}

/// Where bpf-linker is, or will be.
pub fn linker_path(workspace: &Workspace) -> PathBuf {
    workspace.tools().join("bin/bpf-linker")
}

/// Installs the missing ones of the tools that privileged tests, bench and demo start.
pub fn lab_tools() -> Result<()> {
    let missing: Vec<&Tool> = LAB_TOOLS.iter().filter(|tool| find_program(tool.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for Tool { program, package, reason } in &missing {
        println!("missing: {program} (package {package}), which {reason}");
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    if !can_install() {
        bail!("these tools must be installed first; on Debian, as root:\n    {}", apt_line(&packages));
    }
    apt_install(&packages)?;
    if let Some(Tool { program, package, .. }) =
        missing.iter().find(|tool| find_program(tool.program).is_none())
    {
        bail!("package {package} is installed, but {program} is not on PATH ({:?})", env::var_os("PATH"));
    }
    Ok(())
}

fn install_compiler(rejected: &[String]) -> Result<Compiler> {
    for line in rejected {
        println!("not usable for BPF: {line}");
    }
    if !can_install() {
        bail!(
            "no compiler here can build for {target}. Either, on Debian, as root:\n    {apt}\n\
             or, with rustup:\n    rustup toolchain install nightly --profile minimal --component rust-src\n\
             or name a compiler of version {MINIMUM_RUSTC} or later that has a core for the target:\n    \
             export {RUSTC_VARIABLE}=/path/to/rustc",
            target = toolchain::TARGET,
            apt = apt_line(COMPILER_PACKAGES),
        );
    }
    apt_install(COMPILER_PACKAGES)?;
    let Search { compiler, rejected } = Compiler::search();
    compiler.with_context(|| {
        format!(
            "{} are installed, yet no compiler here can build for {}: {}",
            COMPILER_PACKAGES.join(" and "),
            toolchain::TARGET,
            rejected.join("; ")
        )
    })
}

fn install_linker(workspace: &Workspace, compiler: &Compiler) -> Result<()> {
    let Compiler { llvm, bpf_linker: wanted, .. } = compiler;
    let linker = linker_path(workspace);
    if linker.exists() {
        let version = read(Command::new(&linker).arg("--version"))?;
        if version.split_whitespace().last() == Some(wanted) {
            return Ok(());
        }
    }
    println!("installing bpf-linker {wanted}, for LLVM {llvm}, into {}", workspace.tools().display());
    let mut cargo = toolchain::bare(crate::workspace::host_cargo());
    cargo
        .args(["install", "--quiet", "--locked", "--force", "bpf-linker", "--version"])
        .arg(format!("={wanted}"))
        .arg("--root")
        .arg(workspace.tools());
    exec(&mut cargo)
}

/// Whether packages can be installed from here: apt is there, and the user is root.
fn can_install() -> bool {
    is_root() && find_program("apt-get").is_some()
}

/// Whether this process runs with root's effective user id.
pub fn is_root() -> bool {
    // The second number of the line is the effective id: proc_pid_status(5).
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

fn apt_line(packages: &[&str]) -> String {
    format!("apt-get update && apt-get install --no-install-recommends {}", packages.join(" "))
}

/// Installs packages, and refreshes the lists of what there is only if the present ones do not do.
fn apt_install(packages: &[&str]) -> Result<()> {
    println!("installing packages {}", packages.join(" "));
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2");
        apt
    };
    let install = || {
        exec(
            apt()
                .args(["install", "--yes", "--no-install-recommends", "--option=Dpkg::Use-Pty=0"])
                .args(packages),
        )
    };
    if install().is_ok() {
        return Ok(());
    }
    println!("refreshing the package lists");
    exec(apt().arg("update"))?;
    install()
}
