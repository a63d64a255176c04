//! Interfaces that come while a policy is in force, or go, or get another name.

use aya::programs::Xdp;

use super::{Attached, Links, LinksError, Pin, Skipped, apply::remove_if_there};
use crate::{config::policy, network::interfaces::Interface};

/// What [`Links::follow`] did and found.
#[derive(Debug, Default)]
pub struct Followed {
    /// Interfaces that got the program.
    pub attached: Vec<Attached>,
    /// Interfaces that have another name than when they got it.
    pub renamed: Vec<Renamed>,
    /// Interfaces that are meant, but stay without it.
    pub skipped: Vec<Skipped>,
}

/// An interface that has another name than before. Its link is by index, so it stays limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The name before.
    pub from: String,
    /// The name now.
    pub to: String,
    /// Whether the policy means it by that name.
    pub meant: bool,
}

/// What there is to do; finding out changed nothing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Course<'a> {
    /// Interfaces without a program, and how they are to get it.
    new: Vec<(&'a Interface, policy::AttachMode)>,
    /// Interfaces with somebody else's.
    foreign: Vec<Skipped>,
    /// Pins whose interface has another name now.
    renamed: Vec<(Pin, &'a Interface)>,
    /// Pins of interfaces that are not there any more.
    gone: Vec<Pin>,
}

impl Links {
    /// Puts the program that runs on interfaces of the policy that came since, or came back. Those that run it
    /// are not touched, and neither is one of `known` that is as it was when it was passed over.
    pub fn follow(
        &self,
        wanted: &[policy::Interface],
        existing: &[Interface],
        program: &mut Xdp,
        known: &[Skipped],
    ) -> Result<Followed, LinksError> {
        let Course { new, foreign, renamed, gone } = course(wanted, existing, self.pins()?);
        let mut followed = Followed { skipped: foreign, ..Followed::default() };
        for (pin, interface) in renamed {
            // A pin under the old name works as well.
            let _ = std::fs::rename(&pin.path, self.path(interface));
            followed.renamed.push(Renamed {
                from: pin.name,
                to: interface.name.clone(),
                meant: wanted.iter().any(|wish| wish.matches(&interface.name)),
            });
        }
        for (interface, mode) in new {
            if let Some(known) = known.iter().find(|skipped| skipped.interface == *interface) {
                followed.skipped.push(known.clone());
                continue;
            }
            match self.take_new(interface, mode, program) {
                Ok(attached) => followed.attached.push(attached),
                Err(refusal) => followed.skipped.push(Skipped::refused(interface.clone(), &refusal)),
            }
        }
        // One that is named keeps its pin until it is back: so `status` tells that it is missing.
        let is_back = |pin: &Pin| followed.attached.iter().any(|attached| attached.name == pin.name);
        let is_named = |pin: &Pin| wanted.iter().any(|wish| wish.name == pin.name);
        for pin in gone.iter().filter(|pin| is_back(pin) || !is_named(pin)) {
            remove_if_there(&pin.path)
                .map_err(|source| LinksError::Pins { path: pin.path.clone(), source })?;
        }
        Ok(followed)
    }
}

fn course<'a>(wanted: &[policy::Interface], existing: &'a [Interface], pins: Vec<Pin>) -> Course<'a> {
    let mut course = Course::default();
    let is_ours = |interface: &Interface| pins.iter().any(|pin| pin.mode_on(interface).is_some());
    for interface in existing.iter().filter(|interface| !is_ours(interface)) {
        let Some(wish) = wanted.iter().find(|wish| wish.matches(&interface.name)) else { continue };
        match interface.programs.first() {
            None => course.new.push((interface, wish.mode)),
            Some(foreign) => course.foreign.push(Skipped {
                interface: interface.clone(),
                reason: LinksError::foreign(interface, *foreign).to_string(),
            }),
        }
    }
    for pin in pins {
        let on_it = existing.iter().find(|interface| pin.mode_on(interface).is_some());
        match on_it {
            Some(interface) if interface.name != pin.name => course.renamed.push((pin, interface)),
            Some(_) => {}
            // A pin that merely looks dead stays: its program may have been swapped while this looked.
            None if existing.iter().any(|interface| interface.index == pin.index) => {}
            None => course.gone.push(pin),
        }
    }
    course
}

#[cfg(test)]
mod tests;
