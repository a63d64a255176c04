//! `cargo xtask setup`: brings what the other verbs need and says what it does.
//!
//! Packages are installed with apt, as root, on Debian and its derivatives only. Anywhere else the exact
//! commands are printed. bpf-linker comes from crates.io, a gRPC client for the tests from `PyPI`; both go
//! below the target folder, so that nothing of the user's home changes. Looking costs a few milliseconds, so
//! every verb does it.

mod python;

use std::{
    env, fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;

pub use self::python::python;
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
    Tool { program: "nginx", package: "nginx-light", reason: "asks the limiter in the tests (auth_request)" },
    Tool { program: "haproxy", package: "haproxy", reason: "asks the limiter in the tests (Lua)" },
    Tool { program: "caddy", package: "caddy", reason: "asks the limiter in the tests (forward_auth)" },
    Tool { program: "h2load", package: "nghttp2-client", reason: "loads the endpoints in the bench" },
];

/// What boots other kernels.
const KERNEL_TOOLS: &[Tool] = &[
    Tool { program: "qemu-system-x86_64", package: "qemu-system-x86", reason: "runs another kernel" },
    Tool { program: "cpio", package: "cpio", reason: "packs what that one boots into" },
    Tool { program: "insmod", package: "kmod", reason: "loads its modules" },
    Tool { program: "xz", package: "xz-utils", reason: "unpacks them" },
    Tool { program: "strip", package: "binutils", reason: "makes the tests fit" },
];

/// The Debian packages of a compiler with a prebuilt `core` for BPF.
const COMPILER_PACKAGES: &[&str] = &["rustc-web", "libstd-rust-web-dev-bpf"];

/// Installs whatever is missing and reports what is there.
pub fn run(workspace: &Workspace, Options {}: &Options) -> Result<()> {
    let compiler = compiler(workspace)?;
    lab_tools()?;
    let python = python(workspace)?;
    let Compiler { rustc, core, release, llvm, bpf_linker, .. } = &compiler;
    let core = match core {
        Core::Prebuilt => "with a prebuilt core",
        Core::Source => "builds core from its sources",
    };
    println!("compiler: {} {release}, LLVM {llvm}, {core}", rustc.display());
    println!("linker: {} {bpf_linker}", linker_path(workspace).display());
    println!("gRPC client: {}", python.display());
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
    tools(LAB_TOOLS)
}

/// Installs the missing ones of the tools that boot other kernels, and of those that the tests there start.
pub fn kernel_tools() -> Result<()> {
    tools(LAB_TOOLS)?;
    tools(KERNEL_TOOLS)
}

fn tools(wanted: &[Tool]) -> Result<()> {
    let missing: Vec<&Tool> = wanted.iter().filter(|tool| find_program(tool.program).is_none()).collect();
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

/// Asked by the packages whether a service may start (invoke-rc.d(8)); 101 says no.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Keeps packages from starting the servers that they bring, as long as it lives. Where the administrator has
/// a policy already, that one holds.
struct NoServices(bool);

impl NoServices {
    fn new() -> Result<Self> {
        if Path::new(POLICY).exists() {
            return Ok(Self(false));
        }
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o755);
        let mut file = options.open(POLICY).with_context(|| format!("failed to create {POLICY}"))?;
        let guard = Self(true);
        file.write_all(b"#!/bin/sh\nexit 101\n").with_context(|| format!("failed to write {POLICY}"))?;
        Ok(guard)
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.0 {
            drop(fs::remove_file(POLICY));
        }
    }
}

/// Installs packages, and refreshes the lists of what there is only if the present ones do not do.
fn apt_install(packages: &[&str]) -> Result<()> {
    println!("installing packages {}", packages.join(" "));
    let _guard = NoServices::new()?;
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
