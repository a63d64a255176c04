//! Which program runs on which interface: links pinned as `<ifindex>-<name>`, so that enforcement goes on
//! without a process, and swapped atomically when the policy changes.
//!
//! Everything is looked at before anything is changed ([`Links::plan`]): every interface that is named is
//! there, and no program of somebody else is on it. What only a pattern means is passed over if it cannot be
//! had, with a reason ([`Skipped`]): interfaces come and go, and none of them may keep the others from being
//! limited. Then [`Plan::apply`] attaches or swaps one by one, and undoes all of
//! it if one fails. Only interfaces that the policy no longer names are detached after that. Interfaces that
//! come later get the running program by [`Links::follow`].
//!
//! A link is recognised as ours and alive when its program is the one that rtnetlink shows on the
//! interface of its index; a pin alone proves nothing, since it outlives its interface.

mod apply;
mod attach;
mod follow;
mod pin;

use std::{collections::BTreeSet, io, path::PathBuf};

use aya::programs::loaded_programs;

use self::apply::release;
pub use self::{
    attach::Refusal,
    follow::{Followed, Renamed},
    pin::Pin,
};
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
    skipped: Vec<Skipped>,
    unmatched: Vec<String>,
    /// Pins of interfaces that the policy no longer names, and the interface if it is still there.
    surplus: Vec<(Pin, Option<Interface>)>,
}

#[derive(Debug)]
struct Step {
    interface: Interface,
    wanted: AttachMode,
    /// Our link on it, with the mode it has.
    ours: Option<(Pin, Mode)>,
    /// A new interface that refuses the program is passed over.
    optional: bool,
}

/// An interface that is meant, but stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The interface as it was then: while it stays so, there is no use in trying again.
    pub interface: Interface,
    /// Why, and what to do about it.
    pub reason: String,
}

/// What becomes of the plan if an interface cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// One that is named, and not only meant by a pattern, is a reason to change nothing.
    Strict,
    /// It is passed over.
    Lenient,
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
    /// Interfaces that were passed over.
    pub skipped: Vec<Skipped>,
    /// Patterns, and names if those may be missing, that no interface has now.
    pub unmatched: Vec<String>,
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
    /// What to know of an interface of its kind.
    pub remark: Option<String>,
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

    /// Looks at every interface of the policy; refuses if one that is named is missing or carries a foreign
    /// program.
    pub fn plan(&self, wanted: &[policy::Interface]) -> Result<Plan<'_>, LinksError> {
        let existing = interfaces::list().map_err(LinksError::List)?;
        self.plan_over(wanted, &existing, self.pins()?, Manner::Strict)
    }

    /// As [`Self::plan`], but passes over every interface that cannot be had: for going back to a policy that
    /// was in force when there were other interfaces.
    pub fn plan_back(&self, wanted: &[policy::Interface]) -> Result<Plan<'_>, LinksError> {
        let existing = interfaces::list().map_err(LinksError::List)?;
        self.plan_over(wanted, &existing, self.pins()?, Manner::Lenient)
    }

    fn plan_over(
        &self,
        wanted: &[policy::Interface],
        existing: &[Interface],
        mut pins: Vec<Pin>,
        manner: Manner,
    ) -> Result<Plan<'_>, LinksError> {
        let (mut steps, mut skipped, mut unmatched) = (Vec::new(), Vec::new(), Vec::new());
        for wish in wanted {
            let optional = wish.is_pattern() || manner == Manner::Lenient;
            let mut meant = existing.iter().filter(|interface| wish.matches(&interface.name)).peekable();
            if meant.peek().is_none() {
                if !optional {
                    return Err(LinksError::missing(&wish.name, existing));
                }
                unmatched.push(wish.name.clone());
            }
            for interface in meant {
                let ours = pins
                    .iter()
                    .position(|pin| pin.mode_on(interface).is_some())
                    .map(|position| pins.remove(position))
                    .and_then(|pin| pin.mode_on(interface).map(|mode| (pin, mode)));
                let own_id = ours.as_ref().and_then(|(pin, _)| pin.program_id);
                if let Some(foreign) = interface.programs.iter().find(|it| Some(it.program_id) != own_id) {
                    let error = LinksError::foreign(interface, *foreign);
                    if !optional || ours.is_some() {
                        return Err(error);
                    }
                    skipped.push(Skipped { interface: interface.clone(), reason: error.to_string() });
                    continue;
                }
                steps.push(Step { interface: interface.clone(), wanted: wish.mode, ours, optional });
            }
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
        Ok(Plan { links: self, steps, skipped, unmatched, surplus })
    }

    /// The programs that our links run on interfaces.
    pub fn programs(&self) -> Result<BTreeSet<u32>, LinksError> {
        let standing = self.standing()?.into_iter();
        Ok(standing.filter(|link| link.mode.is_some()).filter_map(|link| link.program_id).collect())
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
                    remark: alive.and_then(interfaces::remark),
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
    fn missing(name: &str, existing: &[Interface]) -> Self {
        Self::Missing {
            name: name.to_owned(),
            nearest: interfaces::nearest(name, existing).map(str::to_owned),
            existing: existing.iter().map(|interface| interface.name.clone()).collect(),
        }
    }

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
