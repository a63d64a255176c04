//! The compiler and the linker that make the BPF object.
//!
//! The host's compiler cannot be used as it is: no stable toolchain ships a `core` for
//! `bpfel-unknown-none`. Two kinds of compiler have what it takes, and this module finds out by looking
//! at files which of them are here: one whose sysroot holds a prebuilt `core` for the target (Debian's
//! `rustc-web` with `libstd-rust-web-dev-bpf`), or a nightly with the sources of `core` (rustup's
//! `rust-src` component), from which cargo builds it.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    read,
    workspace::{Workspace, host_cargo},
};

/// The target triple of the object: BPF, little endian.
pub const TARGET: &str = "bpfel-unknown-none";

/// Names a compiler to be tried before all others.
pub const RUSTC_VARIABLE: &str = "RATELIMIT_BPF_RUSTC";

/// The release of bpf-linker that reads the bitcode of a compiler with this major version of LLVM.
///
/// The two must agree: bitcode of another major version is refused, or linked into an object whose BTF
/// is broken (bpf-linker#321). Only pairs that were seen to work stand here.
pub const BPF_LINKERS: &[(u32, &str)] = &[(22, "0.10.3")];

/// The oldest compiler that the workspace's manifests accept.
pub const MINIMUM_RUSTC: &str = env!("CARGO_PKG_RUST_VERSION");

/// A compiler that can build for [`TARGET`].
#[derive(Debug)]
pub struct Compiler {
    /// The compiler itself, never a rustup proxy.
    pub rustc: PathBuf,
    /// The cargo to drive it with.
    pub cargo: PathBuf,
    /// Where its `core` for [`TARGET`] comes from.
    pub core: Core,
    /// What it calls itself, as in "1.96.0".
    pub release: String,
    /// The major version of its LLVM.
    pub llvm: u32,
    /// The release of bpf-linker that goes with it.
    pub bpf_linker: &'static str,
}

/// Where the `core` library for [`TARGET`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// It stands compiled in the compiler's sysroot.
    Prebuilt,
    /// Cargo compiles it from the sources in the compiler's sysroot.
    Source,
}

/// The outcome of looking for a compiler.
#[derive(Debug)]
pub struct Search {
    /// The preferred usable compiler.
    pub compiler: Option<Compiler>,
    /// Why each of the others was passed over, one line a candidate.
    pub rejected: Vec<String>,
}

/// What `rustc -vV` says, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    release: String,
    llvm: u32,
}

// === impl Compiler ===

impl Compiler {
    /// Looks at every compiler that might do, those with a prebuilt `core` first.
    pub fn search() -> Search {
        let mut search = Search { compiler: None, rejected: Vec::new() };
        for (rustc, core) in candidates() {
            match Self::inspect(&rustc, core) {
                Ok(compiler) => {
                    search.compiler = Some(compiler);
                    break;
                }
                Err(why) => search.rejected.push(format!("{}: {why:#}", rustc.display())),
            }
        }
        search
    }

    fn inspect(rustc: &Path, core: Core) -> Result<Self> {
        let Version { release, llvm } = Version::parse(&read(bare(rustc).arg("-vV"))?)?;
        if version_numbers(&release) < version_numbers(MINIMUM_RUSTC) {
            bail!("is version {release}, older than {MINIMUM_RUSTC}");
        }
        let sysroot = PathBuf::from(read(bare(rustc).args(["--print", "sysroot"]))?.trim());
        let cargo = match core {
            Core::Prebuilt => {
                let libraries = sysroot.join("lib/rustlib").join(TARGET).join("lib");
                if !contains_prefixed(&libraries, "libcore-") {
                    bail!("has no prebuilt core in {}", libraries.display());
                }
                host_cargo()
            }
            Core::Source => {
                let source = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs");
                if !source.exists() {
                    bail!("lacks the rust-src component ({})", source.display());
                }
                sysroot.join("bin/cargo")
            }
        };
        let bpf_linker = bpf_linker_for(llvm)?;
        // A sysroot's own binary is the one to run: the path on PATH may be rustup's proxy, which picks a
        // toolchain anew from the environment.
        let own = sysroot.join("bin/rustc");
        let rustc = if own.exists() { own } else { rustc.to_owned() };
        Ok(Self { rustc, cargo, core, release, llvm, bpf_linker })
    }

    /// A cargo command with this compiler and nothing of the cargo that runs this program: neither its
    /// toolchain, nor flags meant for the host, nor profile settings from the environment.
    ///
    /// `bpf-linker` loads the first `libLLVM*` that it finds along `LD_LIBRARY_PATH` and `PATH`,
    /// which on a host with several can be a wrong one; so the compiler's own is put alone into a folder.
    pub fn cargo(&self, workspace: &Workspace) -> Result<Command> {
        let mut cargo = bare(&self.cargo);
        cargo
            .current_dir(&workspace.root)
            .env("RUSTC", &self.rustc)
            // aya-ebpf uses unstable features on this target, with any compiler.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("LD_LIBRARY_PATH", self.llvm_folder(workspace)?);
        if self.core == Core::Source {
            cargo.arg("-Zbuild-std=core");
        }
        Ok(cargo)
    }

    /// A folder that holds this compiler's LLVM library and nothing else.
    fn llvm_folder(&self, workspace: &Workspace) -> Result<PathBuf> {
        let library = self.llvm_library()?;
        let folder = workspace.tools().join("llvm").join(&self.release);
        let link = folder.join("libLLVM.so");
        if fs::read_link(&link).is_ok_and(|linked| linked == library) {
            return Ok(folder);
        }
        fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
        match fs::remove_file(&link) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                return Err(err).with_context(|| format!("failed to replace {}", link.display()));
            }
            _ => symlink(&library, &link).with_context(|| format!("failed to create {}", link.display()))?,
        }
        Ok(folder)
    }

    /// The LLVM library that the compiler itself is linked with, as the dynamic loader finds it.
    fn llvm_library(&self) -> Result<PathBuf> {
        let listing = read(bare("ldd").arg(&self.rustc))?;
        let path = loaded_llvm(&listing).with_context(|| {
            format!(
                "{} is not linked with a shared LLVM library, which bpf-linker borrows; \
                 name another compiler in {RUSTC_VARIABLE}",
                self.rustc.display()
            )
        })?;
        fs::canonicalize(path).with_context(|| format!("failed to resolve {path}"))
    }
}

// === impl Version ===

impl Version {
    fn parse(text: &str) -> Result<Self> {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.map(str::trim).with_context(|| format!("rustc -vV does not say its {name:?}"))
        };
        let release = field("release:")?.to_owned();
        let llvm = field("LLVM version:")?;
        let (major, _) = llvm.split_once('.').unwrap_or((llvm, ""));
        let llvm = major.parse().with_context(|| format!("cannot make out the LLVM version {llvm:?}"))?;
        Ok(Self { release, llvm })
    }
}

/// A command without the variables by which an outer cargo or rustup would steer an inner one.
///
/// What configures the machine rather than the build (proxies, registries, the cargo home) stays.
pub fn bare(program: impl AsRef<OsStr>) -> Command {
    const KEPT: &[&str] =
        &["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_", "CARGO_TERM_"];
    const STRIPPED: &[&str] = &["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN", "__CARGO"];

    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        if starts(STRIPPED) && !starts(KEPT) {
            command.env_remove(&name);
        }
    }
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn candidates() -> Vec<(PathBuf, Core)> {
    let mut candidates = Vec::new();
    let named = env::var_os(RUSTC_VARIABLE).map(PathBuf::from);
    candidates.extend(named.iter().map(|rustc| (rustc.clone(), Core::Prebuilt)));
    candidates.push((PathBuf::from("/usr/bin/rustc"), Core::Prebuilt));
    candidates.extend(find_program("rustc").map(|rustc| (rustc, Core::Prebuilt)));
    candidates.extend(named.map(|rustc| (rustc, Core::Source)));
    candidates.extend(rustup_nightly().map(|rustc| (rustc, Core::Source)));
    candidates.retain(|(rustc, _)| rustc.exists());
    candidates.dedup();
    candidates
}

/// The compiler of rustup's toolchain named nightly. Whether it is one, and has sources, is not said.
fn rustup_nightly() -> Option<PathBuf> {
    find_program("rustup")?;
    let mut rustup = bare("rustup");
    rustup.args(["which", "--toolchain=nightly", "rustc"]);
    let output = rustup.output().ok().filter(|output| output.status.success())?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

/// The first executable of this name along PATH.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// The release of bpf-linker for a compiler with this LLVM.
fn bpf_linker_for(llvm: u32) -> Result<&'static str> {
    let known = BPF_LINKERS.iter().find(|(major, _)| *major == llvm);
    known.map(|(_, release)| *release).with_context(|| {
        let majors: Vec<_> = BPF_LINKERS.iter().map(|(major, _)| major.to_string()).collect();
        format!("uses LLVM {llvm}; bpf-linker is known to work with LLVM {} only", majors.join(", "))
    })
}

/// Picks the path of libLLVM from what ldd prints.
fn loaded_llvm(listing: &str) -> Option<&str> {
    let line = listing.lines().map(str::trim).find(|line| line.starts_with("libLLVM"))?;
    line.split_once("=> ")?.1.split_whitespace().next()
}

/// "1.96.0-nightly" as numbers that compare.
fn version_numbers(release: &str) -> Vec<u32> {
    let numbers = release.split('-').next().unwrap_or_default();
    numbers.split('.').map_while(|number| number.parse().ok()).collect()
}

fn contains_prefixed(folder: &Path, prefix: &str) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUSTC: &str = "rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)\nbinary: rustc\n\
                         host: x86_64-unknown-linux-gnu\nrelease: 1.96.0\nLLVM version: 22.1.8\n";

    #[test]
    fn reads_what_rustc_says_of_itself() {
        assert_eq!(Version::parse(RUSTC).unwrap(), Version { release: "1.96.0".to_owned(), llvm: 22 });
        assert!(Version::parse("release: 1.96.0\n").unwrap_err().to_string().contains("LLVM version"));
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version_numbers("1.100.0") > version_numbers("1.96.0"));
        assert!(version_numbers("1.97.0-nightly") > version_numbers("1.95"));
        assert!(version_numbers("1.94.1") < version_numbers("1.95"));
    }

    #[test]
    fn finds_the_library_the_compiler_loads() {
        let listing = "\tlinux-vdso.so.1 (0x00007fff)\n\
                       \tlibrustc_driver-ea.so => /usr/lib/librustc_driver-ea.so (0x00007fa6)\n\
                       \tlibLLVM.so.22.1 => /usr/lib/libLLVM.so.22.1 (0x00007fa6)\n";
        assert_eq!(loaded_llvm(listing), Some("/usr/lib/libLLVM.so.22.1"));
        assert_eq!(loaded_llvm("\tlibc.so.6 => /usr/lib/libc.so.6 (0x0)\n"), None);
        assert_eq!(
            loaded_llvm("\tlibLLVM.so.22.1 => not found\n").map(Path::new).map(Path::exists),
            Some(false)
        );
    }

    #[test]
    fn an_unknown_llvm_is_refused_with_the_known_ones() {
        assert_eq!(bpf_linker_for(22).unwrap(), "0.10.3");
        let err = bpf_linker_for(23).unwrap_err().to_string();
        assert!(err.contains("LLVM 23") && err.contains("22"), "{err}");
    }
}
