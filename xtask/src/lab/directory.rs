//! Directories that vanish with their guard, among them mounted ones.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use nix::mount::{MsFlags, mount};

use super::{Cleanup, sweep};

/// An empty directory under the system's temporary one, only for its owner.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    _cleanup: Cleanup,
}

/// A BPF file system of its own, so that tests never meet the host's pins or each other's.
#[derive(Debug)]
pub struct BpfFs(Directory);

// === impl Directory ===

impl Directory {
    /// Makes the directory; `role` is part of its name.
    pub fn new(role: &str) -> Result<Self> {
        let path = env::temp_dir().join(sweep::unique_name(role));
        let cleanup = Cleanup::new({
            let path = path.clone();
            move || sweep::remove_directory(&path)
        });
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("failed to create {}", path.display()))?;
        Ok(Self { path, _cleanup: cleanup })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

// === impl BpfFs ===

impl BpfFs {
    /// Mounts a fresh bpffs; needs `CAP_SYS_ADMIN`.
    pub fn mount() -> Result<Self> {
        let directory = Directory::new("bpffs")?;
        mount(Some("bpf"), directory.path(), Some("bpf"), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("failed to mount a bpffs on {}", directory.path().display()))?;
        Ok(Self(directory))
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
