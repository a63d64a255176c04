//! Which program runs on which interface: links pinned as `<ifindex>-<name>`, so that enforcement goes on
//! without a process, and swapped atomically when the policy changes.
//!
//! Everything is looked at before anything is changed ([`Links::plan`]): every interface is there, and no
//! program of somebody else is on it. Then [`Plan::apply`] attaches or swaps one by one, and undoes all of
//! it if one fails. Only interfaces that the policy no longer names are detached after that.
//!
//! A link is recognised as ours and alive when its program is the one that rtnetlink shows on the
//! interface of its index; a pin alone proves nothing, since it outlives its interface.

mod attach;
mod pin;

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use aya::programs::{
    Xdp,
    links::{FdLink, PinnedLink},
    loaded_programs,
    xdp::XdpLink,
};

pub use self::{attach::Refusal, pin::Pin};
use super::interfaces::{self, Interface, Mode};
use crate::config::policy::{self, AttachMode};

/// What can go wrong with links.
#[derive(Debug, thiserror::Error)]
pub enum LinksError {
    /// rtnetlink gave no list of interfaces.
    #[error("failed to list the network interfaces")]
    List(#[source] io::Error),
    /// The directory of pins cannot be read or written.
    #[error("failed to use the pinned links in {}", path.display())]
    Pins {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An interface of the rules file does not exist.
    #[error("interface {name} does not exist in this network namespace{}", suggestion(nearest.as_deref(), existing))]
    Missing {
        /// As the rules file has it.
        name: String,
        /// The existing name that is most like it.
        nearest: Option<String>,
        /// All that exist.
        existing: Vec<String>,
    },
    /// An interface carries somebody else's XDP program.
    #[error(
        "interface {interface} already has an XDP program that is not ratelimit's: {program} ({mode}); it was \
         left alone. Stop what attached it, or take it off (`ip link set dev {interface} {flag} off`), or \
         leave {interface} out of the rules file"
    )]
    Foreign {
        /// The interface.
        interface: String,
        /// The program's name and id.
        program: String,
        /// Where it runs.
        mode: Mode,
        /// The word that `ip` has for that mode.
        flag: &'static str,
    },
    /// An interface refused the program.
    #[error("failed to attach to {interface}: {refusal}. {aftermath}")]
    Attach {
        /// The interface.
        interface: String,
        /// Why.
        refusal: Refusal,
        /// What became of the interfaces that had been changed before.
        aftermath: Aftermath,
    },
    /// All interfaces took the program, but the new policy could not be recorded.
    #[error("failed to record the new policy: {source}. {aftermath}")]
    Commit {
        /// Why.
        source: io::Error,
        /// What became of the interfaces that had been changed before.
        aftermath: Aftermath,
    },
}

fn suggestion(nearest: Option<&str>, existing: &[String]) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean {nearest}?"),
        None => format!("; there are: {}", existing.join(", ")),
    }
}

/// What undoing left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Aftermath {
    /// What could not be undone, with the reason.
    failures: Vec<String>,
}

/// The pinned links of one pin directory.
#[derive(Debug)]
pub struct Links {
    directory: PathBuf,
}

/// What [`Plan::apply`] will do; making it changed nothing.
#[derive(Debug)]
pub struct Plan<'a> {
    links: &'a Links,
    steps: Vec<Step>,
    /// Pins of interfaces that the policy no longer names, and the interface if it is still there.
    surplus: Vec<(Pin, Option<Interface>)>,
}

#[derive(Debug)]
struct Step {
    interface: Interface,
    wanted: AttachMode,
    /// Our link on it, with the mode it has.
    ours: Option<(Pin, Mode)>,
}

/// An interface that runs the program now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The effective mode.
    pub mode: Mode,
    /// Why it is not native although that was tried first.
    pub fallback: Option<Refusal>,
    /// How the program came there.
    pub change: Change,
}

/// How a program came to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// There was none before.
    New,
    /// It replaced its predecessor atomically.
    Swapped,
    /// The predecessor ran in another mode than is wanted now: it was taken off first, so for a moment
    /// nothing was enforced.
    Reattached,
}

/// What [`Plan::apply`] did.
#[derive(Debug)]
pub struct Applied {
    /// The interfaces of the policy, in file order.
    pub attached: Vec<Attached>,
    /// Names of the interfaces that were let go.
    pub detached: Vec<String>,
}

/// A pinned link as it stands, for `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Index and name when it was pinned.
    pub index: u32,
    /// The interface's name now, or the pinned one when it is gone.
    pub name: String,
    /// The program that the link carries.
    pub program_id: Option<u32>,
    /// The effective mode; `None` when the interface is gone or no longer runs the link's program.
    pub mode: Option<Mode>,
}

/// How to undo one step.
enum Undo {
    Detach(PathBuf),
    SwapBack(PathBuf),
    Reattach { interface: Interface, mode: Mode, path: PathBuf },
}

// === impl Links ===

impl Links {
    /// The links pinned in `directory`, which need not exist yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// All pins, by index and name.
    pub fn pins(&self) -> Result<Vec<Pin>, LinksError> {
        pin::read(&self.directory).map_err(|source| LinksError::Pins { path: self.directory.clone(), source })
    }

    /// Looks at every interface of the policy; refuses if one is missing or carries a foreign program.
    pub fn plan(&self, wanted: &[policy::Interface]) -> Result<Plan<'_>, LinksError> {
        let existing = interfaces::list().map_err(LinksError::List)?;
        self.plan_over(wanted, &existing, self.pins()?)
    }

    fn plan_over(
        &self,
        wanted: &[policy::Interface],
        existing: &[Interface],
        mut pins: Vec<Pin>,
    ) -> Result<Plan<'_>, LinksError> {
        let mut steps = Vec::new();
        for policy::Interface { name, mode } in wanted {
            let interface = existing.iter().find(|interface| interface.name == *name).ok_or_else(|| {
                LinksError::Missing {
                    name: name.clone(),
                    nearest: interfaces::nearest(name, existing).map(str::to_owned),
                    existing: existing.iter().map(|interface| interface.name.clone()).collect(),
                }
            })?;
            let ours = pins
                .iter()
                .position(|pin| pin.mode_on(interface).is_some())
                .map(|position| pins.remove(position))
                .and_then(|pin| pin.mode_on(interface).map(|mode| (pin, mode)));
            let own_id = ours.as_ref().and_then(|(pin, _)| pin.program_id);
            if let Some(foreign) = interface.programs.iter().find(|other| Some(other.program_id) != own_id) {
                return Err(LinksError::foreign(interface, *foreign));
            }
            steps.push(Step { interface: interface.clone(), wanted: *mode, ours });
        }
        // A stale pin under the name that a step will use is replaced by that step.
        let taken = |pin: &Pin| steps.iter().any(|step: &Step| self.path(&step.interface) == pin.path);
        let surplus = pins
            .into_iter()
            .filter(|pin| !taken(pin))
            .map(|pin| {
                let alive = existing.iter().find(|interface| pin.mode_on(interface).is_some());
                let interface = alive.cloned();
                (pin, interface)
            })
            .collect();
        Ok(Plan { links: self, steps, surplus })
    }

    /// Every pinned link and whether it is alive.
    pub fn standing(&self) -> Result<Vec<Standing>, LinksError> {
        let existing = interfaces::list().map_err(LinksError::List)?;
        Ok(self
            .pins()?
            .into_iter()
            .map(|pin| {
                let alive = existing.iter().find(|interface| pin.mode_on(interface).is_some());
                Standing {
                    index: pin.index,
                    name: alive.map_or_else(|| pin.name.clone(), |interface| interface.name.clone()),
                    program_id: pin.program_id,
                    mode: alive.and_then(|interface| pin.mode_on(interface)),
                }
            })
            .collect())
    }

    /// Detaches every pinned link and returns their interfaces' names.
    pub fn remove_all(&self) -> Result<Vec<String>, LinksError> {
        let mut names = Vec::new();
        for pin in self.pins()? {
            release(&pin.path, pin.index, pin.program_id)?;
            names.push(pin.name);
        }
        Ok(names)
    }

    fn path(&self, interface: &Interface) -> PathBuf {
        self.directory.join(pin::file_name(interface.index, &interface.name))
    }
}

// === impl Plan ===

impl Plan<'_> {
    /// Puts `program` on every interface, then calls `commit`. If an interface or `commit` refuses, what was
    /// done is undone, for which `previous` is the program that ran before. Interfaces that the policy no
    /// longer names are detached at the end, when nothing can fail any more.
    pub fn apply(
        self,
        program: &mut Xdp,
        mut previous: Option<Xdp>,
        commit: impl FnOnce() -> io::Result<()>,
    ) -> Result<Applied, LinksError> {
        let Self { links, steps, surplus } = self;
        let mut undo = Vec::new();
        let mut attached = Vec::new();
        for step in steps {
            let interface = step.interface.name.clone();
            match links.take(step, program, previous.is_some(), &mut undo) {
                Ok(done) => attached.push(done),
                Err(refusal) => {
                    let aftermath = roll_back(undo, previous.as_mut());
                    return Err(LinksError::Attach { interface, refusal, aftermath });
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
        Ok(Applied { attached, detached })
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
        let Step { interface, wanted, ours } = step;
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
                // A pin under this very name is stale, or the plan would have recognised it.
                remove_if_there(&path).map_err(Refusal::from_other)?;
                let attach::Attachment { link, mode, fallback } =
                    attach::attach(program, &interface, wanted)?;
                pin_link(link, &path)?;
                undo.push(Undo::Detach(path));
                Ok(finish(mode, fallback, Change::New))
            }
        }
    }
}

/// Whether a link may stay in the mode that it has. `auto` keeps generic: trying native again would leave
/// the interface open for a moment on every change of the policy.
fn agrees(wanted: AttachMode, mode: Mode) -> bool {
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
fn release(path: &Path, index: u32, program_id: Option<u32>) -> Result<(), LinksError> {
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

fn remove_if_there(path: &Path) -> io::Result<()> {
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

// === impl Refusal ===

impl Refusal {
    fn from_other(error: impl std::error::Error) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // aya's transparent errors repeat their source.
            if !reason.ends_with(&cause_text) {
                reason = format!("{reason}: {cause_text}");
            }
            source = cause.source();
        }
        Self { errno: None, reason, hint: None }
    }
}

// === impl LinksError ===

impl LinksError {
    fn foreign(interface: &Interface, program: interfaces::Attached) -> Self {
        Self::Foreign {
            interface: interface.name.clone(),
            program: program_words(program.program_id),
            mode: program.mode,
            flag: match program.mode {
                Mode::Native => "xdpdrv",
                Mode::Generic => "xdpgeneric",
                Mode::Offloaded => "xdpoffload",
            },
        }
    }
}

/// A program's name and id. Looking one up by id needs `CAP_SYS_ADMIN`; without it, the id alone.
fn program_words(id: u32) -> String {
    let name = loaded_programs()
        .filter_map(Result::ok)
        .find(|program| program.id() == id)
        .and_then(|program| program.name_as_str().map(str::to_owned));
    match name {
        Some(name) => format!("`{name}`, program id {id}"),
        None => format!("program id {id}"),
    }
}

#[cfg(test)]
mod tests;
