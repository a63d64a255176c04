//! `cargo xtask build`: the BPF object, then the host's crates with the object inside.
//!
//! The object has its own compiler, flags, profile and target folder; nothing that configures the host
//! build reaches it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::SystemTime,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Deserialize;

use crate::{
    exec, read, setup,
    toolchain::{Compiler, TARGET},
    verify_object,
    workspace::Workspace,
};

/// Builds the BPF object and the `ratelimit` binary that embeds it.
#[derive(Args, Debug)]
pub struct Options {
    /// Build the binary with optimisations, into target/release (the object always is optimised).
    #[arg(long)]
    pub release: bool,
}

/// The crate that the objects are made of; each of its binaries becomes one object.
pub const CRATE: &str = "ratelimit-ebpf";

/// The object that the userspace crate embeds: the binary named like the crate.
const MAIN_OBJECT: &str = "ratelimit";

/// The crates whose sources decide whether an object is out of date.
const SOURCES: &[&str] = &["ratelimit-common", CRATE];

/// Builds, verifies and places the objects, then builds the workspace's host crates.
pub fn run(workspace: &Workspace, Options { release }: &Options) -> Result<()> {
    for object in objects(workspace)? {
        println!("{}", object.display());
    }
    let mut cargo = workspace.cargo();
    cargo.arg("build");
    if *release {
        cargo.arg("--release");
    }
    exec(&mut cargo)?;
    let profile = if *release { "release" } else { "debug" };
    println!("{}", workspace.target.join(profile).join(MAIN_OBJECT).display());
    Ok(())
}

/// Builds the binary of a release with the next version of all pinned layouts, for tests of upgrades, and
/// returns where it is. Only the crates that know the version are compiled a second time.
pub fn next_abi(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target.join("next-abi");
    let mut cargo = workspace.cargo();
    cargo
        .args(["build", "--package=ratelimit-userspace", "--bin=ratelimit", "--features=next-abi"])
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_BUILD_BUILD_DIR", &workspace.target);
    exec(&mut cargo)?;
    Ok(folder.join("debug").join(MAIN_OBJECT))
}

/// Builds and verifies the objects, and returns where they are: `<target>/bpf/<name>.bpf.o`.
pub fn objects(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let compiler = setup::compiler(workspace)?;
    let built = compile(workspace, &compiler)?;
    let newest_source = newest_source(workspace)?;
    let folder = workspace.objects();
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let mut objects = Vec::new();
    for (name, executable) in built {
        let name = if name == CRATE { MAIN_OBJECT } else { &name };
        let object = folder.join(name).with_extension("bpf.o");
        let bytes =
            fs::read(&executable).with_context(|| format!("failed to read {}", executable.display()))?;
        verify_object::verify(&bytes).with_context(|| format!("{CRATE}: the object {name} must not ship"))?;
        place(&object, &bytes, newest_source)?;
        objects.push(object);
    }
    Ok(objects)
}

/// Compiles every binary of the BPF crate; returns their names and files.
fn compile(workspace: &Workspace, compiler: &Compiler) -> Result<Vec<(String, PathBuf)>> {
    let linker = setup::linker_path(workspace);
    let flags = [
        // aya-ebpf reads the architecture whose registers and structures it describes from this.
        format!("--cfg=bpf_target_arch=\"{}\"", std::env::consts::ARCH),
        format!("-Clinker={}", linker.display()),
        "-Clink-arg=--btf".to_owned(),
        // Below v3 there are no atomics that return a value.
        "-Ctarget-cpu=v3".to_owned(),
    ];
    let mut cargo = compiler.cargo(workspace)?;
    cargo
        .args(["build", "--message-format=json-render-diagnostics", "--profile=bpf"])
        .args(["--package", CRATE, "--bins", "--target", TARGET, "--target-dir"])
        .arg(workspace.target.join("bpf-build"))
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .stdin(Stdio::null());
    let built = executables(&read(&mut cargo)?)?;
    ensure!(
        built.iter().any(|(name, _)| name == CRATE),
        "{CRATE} built no binary of that name, which is the object to embed"
    );
    Ok(built)
}

/// The names and files of the programs that cargo says it built.
pub(crate) fn executables(messages: &str) -> Result<Vec<(String, PathBuf)>> {
    let mut built = Vec::new();
    for line in messages.lines() {
        let message: Message =
            serde_json::from_str(line).with_context(|| format!("failed to read cargo's message {line}"))?;
        if let Message { target: Some(target), executable: Some(executable) } = message {
            built.push((target.name, executable));
        }
    }
    Ok(built)
}

/// What cargo reports of a finished binary.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Writes an object if it differs from the one in place, or if that one is older than its sources.
///
/// The build script of the userspace crate compares those times, and runs again when the object's moves:
/// an object that did not change must keep its time, or every build would compile that crate anew.
fn place(object: &Path, bytes: &[u8], newest_source: SystemTime) -> Result<()> {
    let modified = fs::metadata(object).and_then(|metadata| metadata.modified());
    let current = modified.is_ok_and(|modified| modified >= newest_source)
        && fs::read(object).is_ok_and(|placed| placed == bytes);
    if current {
        return Ok(());
    }
    // In one step: a build of the userspace crate at the same time must not embed half an object.
    let partial = object.with_extension("partial");
    fs::write(&partial, bytes)
        .and_then(|()| fs::rename(&partial, object))
        .with_context(|| format!("failed to write {}", object.display()))
}

/// When a source of the objects last changed.
fn newest_source(workspace: &Workspace) -> Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for member in SOURCES {
        let folder = workspace.root.join(member);
        for path in [folder.join("Cargo.toml"), folder.join("src")] {
            newest = newest.max(newest_below(&path)?);
        }
    }
    Ok(newest)
}

fn newest_below(path: &Path) -> Result<SystemTime> {
    let metadata = fs::metadata(path).with_context(|| format!("failed to look at {}", path.display()))?;
    if metadata.is_file() {
        return metadata.modified().with_context(|| format!("{} has no time", path.display()));
    }
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(path).with_context(|| format!("failed to list {}", path.display()))? {
        newest = newest.max(newest_below(&entry?.path())?);
    }
    Ok(newest)
}
