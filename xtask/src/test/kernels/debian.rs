//! Kernels from Debian's archive, kept below the target folder: nothing of them is installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::Kernel;
use crate::{exec, read, workspace::Workspace};

/// Debian's own address for its mirrors. apt checks what comes from there by the keys that the host trusts.
const MIRROR: &str = "http://deb.debian.org/debian";
/// Depends on the suite's newest kernel, in the build for virtual machines: it boots fast, and what a NIC
/// would need is left out.
const METAPACKAGE: &str = "linux-image-cloud-amd64";

/// A kernel, unpacked.
#[derive(Debug)]
pub(super) struct Files {
    /// As `uname -r` says it.
    pub(super) release: String,
    /// The image that boots.
    pub(super) image: PathBuf,
    /// Where its modules are.
    pub(super) modules: PathBuf,
}

/// The newest kernel of the suite; downloaded unless it is there.
pub(super) fn fetch(workspace: &Workspace, kernel: &Kernel) -> Result<Files> {
    let home = workspace.target.join("kernels").join(kernel.suite);
    let apt = Apt::new(&home, kernel.suite)?;
    exec(apt.command("apt-get").arg("update"))?;
    let package = apt.newest()?;
    let release = package.trim_start_matches("linux-image-").to_owned();
    let root = home.join(&package);
    if !root.exists() {
        println!("downloading {package}");
        exec(apt.command("apt-get").args(["download", &package]).current_dir(&home))?;
        let archives = fs::read_dir(&home).with_context(|| format!("failed to read {}", home.display()))?;
        let archive = archives
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .with_context(|| format!("apt left no package in {}", home.display()))?;
        // Renamed into place: half a kernel is none.
        let partial = home.join("partial");
        exec(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&partial))?;
        fs::rename(&partial, &root)
            .and_then(|()| fs::remove_file(&archive))
            .with_context(|| format!("failed to put {package} in its place"))?;
    }
    let image = root.join("boot").join(format!("vmlinuz-{release}"));
    let places = ["usr/lib/modules", "lib/modules"].map(|place| root.join(place).join(&release));
    let modules = places
        .into_iter()
        .find(|place| place.exists())
        .with_context(|| format!("{} holds no modules", root.display()))?;
    Ok(Files { release, image, modules })
}

impl Files {
    /// The file of a module, which may be compressed.
    pub(super) fn module(&self, name: &str) -> Result<PathBuf> {
        fn find(directory: &Path, name: &str) -> Option<PathBuf> {
            fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path())).find_map(|path| {
                let file = path.file_name()?.to_str()?;
                let is_it = file.strip_prefix(name).is_some_and(|rest| rest.starts_with(".ko"));
                if is_it { Some(path) } else { find(&path, name) }
            })
        }
        find(&self.modules, name).with_context(|| format!("Linux {} has no module {name}", self.release))
    }
}

/// apt with a state and a list of sources of its own.
struct Apt {
    options: Vec<String>,
}

// === impl Apt ===

impl Apt {
    fn new(home: &Path, suite: &str) -> Result<Self> {
        let (state, cache) = (home.join("apt/state"), home.join("apt/cache"));
        for directory in [state.join("lists/partial"), cache.join("archives/partial")] {
            fs::create_dir_all(&directory)
                .with_context(|| format!("failed to create {}", directory.display()))?;
        }
        let sources = home.join("apt/sources.list");
        fs::write(&sources, format!("deb [arch=amd64] {MIRROR} {suite} main\n"))
            .with_context(|| format!("failed to write {}", sources.display()))?;
        let options = [
            format!("Dir::State={}", state.display()),
            format!("Dir::Cache={}", cache.display()),
            format!("Dir::Etc::SourceList={}", sources.display()),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            "Dir::State::status=/dev/null".to_owned(),
            "APT::Architecture=amd64".to_owned(),
            // The user that apt downloads as cannot write below the target folder.
            "APT::Sandbox::User=root".to_owned(),
        ];
        Ok(Self { options: options.into() })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("--quiet=2");
        for option in &self.options {
            command.args(["--option", option]);
        }
        command
    }

    /// The package of the suite's newest kernel.
    fn newest(&self) -> Result<String> {
        let depends = read(self.command("apt-cache").args(["depends", METAPACKAGE]))?;
        depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|package| package.starts_with("linux-image-"))
            .map(str::to_owned)
            .with_context(|| format!("{METAPACKAGE} depends on no kernel: {depends}"))
    }
}
