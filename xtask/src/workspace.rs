//! Where the workspace is and where its products go.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::read;

/// The places that every verb needs, as cargo itself resolves them (`CARGO_TARGET_DIR` and
/// configuration files included).
#[derive(Debug)]
pub struct Workspace {
    /// The folder of the root manifest.
    pub root: PathBuf,
    /// The target directory.
    pub target: PathBuf,
    /// The member crates.
    pub members: Vec<Member>,
}

/// A member crate.
#[derive(Debug, Deserialize)]
pub struct Member {
    /// The package name.
    pub name: String,
    /// Its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// Its libraries, binaries, tests.
    pub targets: Vec<Target>,
}

/// Something that cargo builds from a crate.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// The target's name.
    pub name: String,
    /// What it is: "lib", "bin", "test" and so on.
    pub kind: Vec<String>,
}

// === impl Workspace ===

impl Workspace {
    /// Asks cargo for the workspace that this program was compiled from.
    pub fn load() -> Result<Self> {
        #[derive(Deserialize)]
        struct Metadata {
            workspace_root: PathBuf,
            target_directory: PathBuf,
            packages: Vec<Member>,
        }

        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let json = read(
            Command::new(host_cargo())
                .args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"])
                .arg(&manifest),
        )?;
        let Metadata { workspace_root, target_directory, packages } =
            serde_json::from_str(&json).context("failed to read the answer of cargo metadata")?;
        Ok(Self { root: workspace_root, target: target_directory, members: packages })
    }

    /// Where `cargo xtask build` leaves the objects that the kernel loads.
    pub fn objects(&self) -> PathBuf {
        self.target.join("bpf")
    }

    /// Where `cargo xtask setup` installs the tools that cargo can build.
    pub fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// The host's cargo, started at the workspace root.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(host_cargo());
        cargo.current_dir(&self.root);
        // `cargo run` adds the folders of this program's own libraries for the program's sake only.
        cargo.env_remove("LD_LIBRARY_PATH");
        cargo
    }
}

/// The cargo that runs this program (not rustup's proxy for it), or the first on PATH.
pub fn host_cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}
