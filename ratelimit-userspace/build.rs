//! Finds the BPF object that the library embeds.
//!
//! Cargo cannot build it here: it takes another compiler, and `cargo xtask build` is what brings that. So
//! an object that is missing or out of date stops the build with the command that helps.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Names the object, here to this script, and from this script to the library.
const OBJECT: &str = "RATELIMIT_BPF_OBJECT";

/// What the object is made of, as seen from the folder of this crate.
const SOURCES: &[&str] = &[
    "../ratelimit-common/Cargo.toml",
    "../ratelimit-common/src",
    "../ratelimit-ebpf/Cargo.toml",
    "../ratelimit-ebpf/src",
];

fn main() {
    println!("cargo::rerun-if-env-changed={OBJECT}");
    let given = env::var_os(OBJECT).map(PathBuf::from);
    let Some(object) = given.clone().or_else(placed) else {
        println!("cargo::error=there is no BPF object to embed; run: cargo xtask build");
        return;
    };
    println!("cargo::rerun-if-changed={}", object.display());
    if given.is_none() {
        for source in SOURCES {
            println!("cargo::rerun-if-changed={source}");
        }
    }

    let Ok(built) = modified(&object) else {
        println!("cargo::error=there is no BPF object at {}; run: cargo xtask build", object.display());
        return;
    };
    // An object that somebody names is that person's affair.
    if given.is_none()
        && SOURCES.iter().any(|source| newest(Path::new(source)).is_ok_and(|time| time > built))
    {
        println!("cargo::error=the BPF object is older than its sources; run: cargo xtask build");
        return;
    }
    println!("cargo::rustc-env={OBJECT}={}", object.display());
}

/// Where `cargo xtask build` puts the object: below the target directory, which cargo does not tell to
/// build scripts, but which is somewhere above the folder for this script's output.
fn placed() -> Option<PathBuf> {
    let output = PathBuf::from(env::var_os("OUT_DIR")?);
    let mut objects = output.ancestors().map(|folder| folder.join("bpf/ratelimit.bpf.o"));
    objects.find(|object| object.exists())
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

fn newest(path: &Path) -> io::Result<SystemTime> {
    if !path.is_dir() {
        return modified(path);
    }
    let mut time = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(path)? {
        time = time.max(newest(&entry?.path())?);
    }
    Ok(time)
}
