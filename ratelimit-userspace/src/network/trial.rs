//! A policy on trial: the generation before it stays pinned beside it, so that anybody with the pins can go
//! back to it, the daemon or not.
//!
//! ```text
//! <pin_dir>/v3/program-before   the program that ran before
//! <pin_dir>/v3/policy-before    what it was, in words
//! ```
//!
//! They stand from just before the change until it is confirmed or undone: that they are there is what says
//! that a trial is on.

use std::{fs, io, path::Path};

use aya::programs::Xdp;
use aya_obj::programs::XdpAttachType;

use super::{
    description::Description,
    links::{Applied, Links, LinksError},
    state::{StateDir, StateError},
};
use crate::config::policy::{AttachMode, Interface};

/// The pins of a generation, and what they are called while it waits.
const KEPT: [(&str, &str); 3] =
    [("program", "program-before"), ("policy", "policy-before"), ("next", "next-before")];

/// Why the generation before cannot be put back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Nothing is on trial.
    #[error("no policy is on trial: it was confirmed or undone already")]
    NoTrial,
    /// Its description is of no use.
    #[error(transparent)]
    State(#[from] StateError),
    /// Its program cannot be used.
    #[error("failed to open the program that ran before")]
    Program(#[source] aya::programs::ProgramError),
    /// An interface refuses it.
    #[error(transparent)]
    Links(#[from] LinksError),
}

/// Whether a policy is on trial.
pub fn is_on(state: &StateDir) -> bool {
    state.state().join(KEPT[0].1).exists()
}

/// Keeps the generation that runs, for the time of a trial. `false`: none runs.
pub fn keep(state: &StateDir) -> io::Result<bool> {
    let directory = state.state();
    end(state)?;
    // The program comes last: with it the trial is on.
    for (name, before) in KEPT.iter().rev() {
        match fs::hard_link(directory.join(name), directory.join(before)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let _ = end(state);
                return Err(error);
            }
        }
    }
    Ok(is_on(state))
}

/// Ends a trial, whatever came of it.
pub fn end(state: &StateDir) -> io::Result<()> {
    // The program goes first: without it no trial is on.
    KEPT.iter().try_for_each(|(_, before)| remove(&state.state().join(before)))
}

/// Puts the generation before back on its interfaces, link by link and each atomically, and ends the trial.
pub fn restore(state: &StateDir) -> Result<Applied, RestoreError> {
    if !is_on(state) {
        return Err(RestoreError::NoTrial);
    }
    let directory = state.state();
    let open = |name: &str| Xdp::from_pin(directory.join(name), XdpAttachType::Interface);
    let mut before = open(KEPT[0].1).map_err(RestoreError::Program)?;
    let description = Description::read_from(&directory.join(KEPT[1].1))?;
    let interfaces = description.map(|description| interfaces(&description)).unwrap_or_default();
    let links = Links::new(state.links());
    let applied = links.plan_back(&interfaces)?.apply(&mut before, open(KEPT[0].0).ok(), || {
        // The program goes last: until then the trial is on, and this can be done again.
        for (name, before) in KEPT.iter().rev() {
            match fs::rename(directory.join(before), directory.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    })?;
    Ok(applied)
}

fn interfaces(description: &Description) -> Vec<Interface> {
    let mode = |mode: &str| match mode {
        "native" => AttachMode::Native,
        "generic" => AttachMode::Generic,
        _ => AttachMode::Auto,
    };
    let interfaces = description.interfaces.iter();
    interfaces.map(|it| Interface { name: it.name.clone(), mode: mode(&it.mode) }).collect()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
