//! Putting a program on the interfaces of a plan, one by one, and taking it all back if one refuses.

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use aya::programs::{
    Xdp,
    links::{FdLink, PinnedLink},
    xdp::XdpLink,
};

use super::{
    Aftermath, Applied, Attached, Change, Links, LinksError, Pin, Plan, Refusal, Skipped, Step, attach,
};
use crate::{
    config::policy::AttachMode,
    network::interfaces::{self, Interface, Mode},
};

/// How to undo one step.
enum Undo {
    Detach(PathBuf),
    SwapBack(PathBuf),
    Reattach { interface: Interface, mode: Mode, path: PathBuf },
}

// === impl Plan ===

impl Plan<'_> {
    /// Puts `program` on every interface, then calls `commit`. If an interface that may not be passed over or
    /// `commit` refuses, what was done is undone, for which `previous` is the program that ran before. Interfaces that the policy no
    /// longer names are detached at the end, when nothing can fail any more.
    pub fn apply(
        self,
        program: &mut Xdp,
        mut previous: Option<Xdp>,
        commit: impl FnOnce() -> io::Result<()>,
    ) -> Result<Applied, LinksError> {
        let Self { links, steps, mut skipped, unmatched, surplus } = self;
        let mut undo = Vec::new();
        let mut attached = Vec::new();
        for step in steps {
            let interface = step.interface.clone();
            let dispensable = step.optional && step.ours.is_none();
            match links.take(step, program, previous.is_some(), &mut undo) {
                Ok(done) => attached.push(done),
                Err(refusal) if dispensable => skipped.push(Skipped::refused(interface, &refusal)),
                Err(refusal) => {
                    let aftermath = roll_back(undo, previous.as_mut());
                    return Err(LinksError::Attach { interface: interface.name, refusal, aftermath });
                }
            }
        }
        if let Err(source) = commit() {
            let aftermath = roll_back(undo, previous.as_mut());
            return Err(LinksError::Commit { source, aftermath });
        }
        let mut detached = Vec::new();
        for (pin, interface) in surplus {
            release(&pin.path, pin.index, pin.program_id)?;
            detached.extend(interface.map(|interface| interface.name));
        }
        Ok(Applied { attached, detached, skipped, unmatched })
    }
}

impl Links {
    /// Puts the program on one interface. `restorable`: the program that runs now can be had again.
    fn take(
        &self,
        step: Step,
        program: &mut Xdp,
        restorable: bool,
        undo: &mut Vec<Undo>,
    ) -> Result<Attached, Refusal> {
        let Step { interface, wanted, ours, optional: _ } = step;
        let path = self.path(&interface);
        let finish = |mode, fallback, change| Attached {
            index: interface.index,
            name: interface.name.clone(),
            mode,
            fallback,
            change,
        };
        match ours {
            Some((pin, mode)) if agrees(wanted, mode) => {
                swap(&pin.path, program)?;
                undo.push(Undo::SwapBack(pin.path.clone()));
                if pin.path != path {
                    // The interface was renamed. A pin under the old name still works, so no failure.
                    let renamed = std::fs::rename(&pin.path, &path);
                    if let (Ok(()), Some(Undo::SwapBack(known))) = (renamed, undo.last_mut()) {
                        *known = path;
                    }
                }
                Ok(finish(mode, None, Change::Swapped))
            }
            Some((pin, mode)) => {
                if !restorable {
                    return Err(Refusal {
                        errno: None,
                        reason: format!(
                            "it is attached in {mode} mode by a program that is not pinned any more, so it \
                             could not be restored"
                        ),
                        hint: Some("`ratelimit detach` first".to_owned()),
                    });
                }
                release(&pin.path, pin.index, pin.program_id).map_err(Refusal::from_other)?;
                undo.push(Undo::Reattach { interface: interface.clone(), mode, path: path.clone() });
                let attach::Attachment { link, mode, fallback } =
                    attach::attach(program, &interface, wanted)?;
                pin_link(link, &path)?;
                undo.push(Undo::Detach(path));
                Ok(finish(mode, fallback, Change::Reattached))
            }
            None => {
                let attached = self.take_new(&interface, wanted, program)?;
                undo.push(Undo::Detach(path));
                Ok(attached)
            }
        }
    }

    /// Puts the program on an interface that has none.
    pub(super) fn take_new(
        &self,
        interface: &Interface,
        wanted: AttachMode,
        program: &mut Xdp,
    ) -> Result<Attached, Refusal> {
        let path = self.path(interface);
        // A pin under this very name is stale, or it would have been recognised.
        remove_if_there(&path).map_err(Refusal::from_other)?;
        let attach::Attachment { link, mode, fallback } = attach::attach(program, interface, wanted)?;
        pin_link(link, &path)?;
        let (index, name) = (interface.index, interface.name.clone());
        Ok(Attached { index, name, mode, fallback, change: Change::New })
    }
}

/// Whether a link may stay in the mode that it has. `auto` keeps generic: trying native again would leave
/// the interface open for a moment on every change of the policy.
pub(super) fn agrees(wanted: AttachMode, mode: Mode) -> bool {
    match wanted {
        AttachMode::Auto => true,
        AttachMode::Native => mode == Mode::Native,
        AttachMode::Generic => mode == Mode::Generic,
    }
}

/// Swaps the program of a pinned link atomically.
fn swap(path: &Path, program: &mut Xdp) -> Result<(), Refusal> {
    let link = PinnedLink::from_pin(path).map_err(Refusal::from_other)?;
    let link = XdpLink::try_from(FdLink::from(link)).map_err(Refusal::from_other)?;
    let id = program.attach_to_link(link).map_err(Refusal::from_other)?;
    // The pin holds the link; this process must not, or removing the pin would not detach it.
    drop(program.take_link(id).map_err(Refusal::from_other)?);
    Ok(())
}

fn pin_link(link: FdLink, path: &Path) -> Result<(), Refusal> {
    // On failure the link is dropped, which detaches it.
    link.pin(path).map(drop).map_err(Refusal::from_other)
}

/// Removes a pin and waits until its program is off the interface: the kernel lets go of a link a little
/// after its last reference, and a new attachment before that is refused as busy.
pub(super) fn release(path: &Path, index: u32, program_id: Option<u32>) -> Result<(), LinksError> {
    remove_if_there(path).map_err(|source| LinksError::Pins { path: path.to_owned(), source })?;
    let Some(program_id) = program_id else { return Ok(()) };
    for _ in 0..200 {
        let existing = interfaces::list().map_err(LinksError::List)?;
        let still_there = existing.iter().any(|interface| {
            interface.index == index
                && interface.programs.iter().any(|program| program.program_id == program_id)
        });
        if !still_there {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn roll_back(undo: Vec<Undo>, mut previous: Option<&mut Xdp>) -> Aftermath {
    let mut failures = Vec::new();
    for step in undo.into_iter().rev() {
        let (path, outcome) = match step {
            Undo::Detach(path) => {
                let outcome = match Pin::open(&path) {
                    Some(pin) => release(&path, pin.index, pin.program_id).map_err(|error| error.to_string()),
                    None => Ok(()),
                };
                (path, outcome)
            }
            Undo::SwapBack(path) => {
                let outcome = match previous.as_deref_mut() {
                    Some(previous) => swap(&path, previous).map_err(|refusal| refusal.to_string()),
                    None => Err("its previous program is not pinned any more".to_owned()),
                };
                (path, outcome)
            }
            Undo::Reattach { interface, mode, path } => {
                let outcome = match previous.as_deref_mut() {
                    Some(previous) => attach::exactly(previous, &interface, mode)
                        .and_then(|link| pin_link(link, &path))
                        .map_err(|refusal| refusal.to_string()),
                    None => Err("its previous program is not pinned any more".to_owned()),
                };
                (path, outcome)
            }
        };
        if let Err(reason) = outcome {
            let name = Pin::name_in(&path).unwrap_or_else(|| path.display().to_string());
            failures.push(format!("{name}: {reason}"));
        }
    }
    Aftermath { failures }
}

// === impl Skipped ===

impl Skipped {
    /// One that does not take the program.
    pub(super) fn refused(interface: Interface, refusal: &Refusal) -> Self {
        let reason = format!("failed to attach to {}: {refusal}", interface.name);
        Self { interface, reason }
    }
}

// === impl Aftermath ===

impl std::fmt::Display for Aftermath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.failures.is_empty() {
            f.write_str("What was enforced before still is")
        } else {
            write!(f, "Undoing failed on {}", self.failures.join(", "))
        }
    }
}
