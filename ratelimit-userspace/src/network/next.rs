//! `network.next`: another XDP program that gets what this one lets pass, by a tail call.
//!
//! It is found where somebody pinned it, and stands in the map `next` of each generation. The kernel empties
//! such a map when the last process or pin that holds it goes, whatever programs use it: so the map is pinned
//! while its generation runs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    maps::MapError,
    pin::PinError,
    programs::{ProgramError, Xdp},
};
use aya_obj::{generated::bpf_prog_type::BPF_PROG_TYPE_XDP, programs::XdpAttachType};

use super::{
    program::{self, Program},
    state,
};

/// The map's name in the object, and its pin's in the state directory.
pub(super) const NAME: &str = "next";

/// A program that gets what passes.
#[derive(Debug)]
pub struct Next {
    path: PathBuf,
    program: Xdp,
}

/// Why a program cannot be the next one.
#[derive(Debug, thiserror::Error)]
pub enum NextError {
    /// Nothing is there.
    #[error(
        "`network.next` names {}, where nothing is pinned; pin the program first (`bpftool prog pin id N {}`)",
        .0.display(), .0.display()
    )]
    Missing(PathBuf),
    /// It is no pin of a program, or privilege is missing.
    #[error("failed to open the pinned program {} of `network.next`", path.display())]
    Open {
        /// The pin.
        path: PathBuf,
        /// Why.
        source: ProgramError,
    },
    /// It is a program of another type.
    #[error("`network.next` names {}, a program of type {kind}; only an XDP program can get packets", path.display())]
    Kind {
        /// The pin.
        path: PathBuf,
        /// The kernel's name for the type.
        kind: String,
    },
    /// It is a limiter itself.
    #[error(
        "`network.next` names {}, which is a program of ratelimit: it would limit every packet again", .0.display()
    )]
    Own(PathBuf),
    /// The kernel does not let this program call it.
    #[error(
        "the kernel refuses {} as `network.next`: {source}. It must be an XDP program that takes frames of \
         several buffers, as this one does (`SEC(\"xdp.frags\")` in C), and that is bound to no device", path.display()
    )]
    Unfit {
        /// The pin.
        path: PathBuf,
        /// What the kernel says.
        source: MapError,
    },
    /// The map cannot be pinned.
    #[error("failed to pin the map `next` at {}", path.display())]
    Pin {
        /// The pin.
        path: PathBuf,
        /// Why.
        source: PinError,
    },
}

// === impl Next ===

impl Next {
    /// Opens the program pinned at `path` and looks whether it is of use.
    pub fn open(path: &Path) -> Result<Self, NextError> {
        let path = path.to_owned();
        // Whatever else is wrong with the path is for the kernel to say.
        if matches!(fs::symlink_metadata(&path), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            return Err(NextError::Missing(path));
        }
        let opened = Xdp::from_pin(&path, XdpAttachType::Interface)
            .and_then(|program| program.info().map(|info| (program, info)));
        let (program, info) = match opened {
            Ok(opened) => opened,
            Err(source) => return Err(NextError::Open { path, source }),
        };
        let kind = info.program_type();
        if kind != BPF_PROG_TYPE_XDP {
            return Err(NextError::Kind { path, kind: format!("{kind:?}") });
        }
        if info.name() == program::NAME.as_bytes() {
            return Err(NextError::Own(path));
        }
        Ok(Self { path, program })
    }

    /// Lets a loaded generation hand on to it what passes.
    pub fn follow(&self, limiter: &mut Program) -> Result<(), NextError> {
        let path = || self.path.clone();
        let program = self.program.fd().map_err(|source| NextError::Open { path: path(), source })?;
        limiter.set_next(program).map_err(|source| NextError::Unfit { path: path(), source })
    }
}

/// Pins the map of a loaded generation that hands packets on, beside the one in use.
pub fn stage(directory: &Path, program: &Program) -> Result<(), NextError> {
    let path = state::staged(directory, NAME);
    match program.map(NAME) {
        Some(map) => map.pin(&path).map_err(|source| NextError::Pin { path, source }),
        None => Ok(()),
    }
}
