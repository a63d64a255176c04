//! Looks at the host. What cannot be seen is listed, and nothing is changed.

mod devices;
mod ethtool;
mod host;
mod netdev;
mod pins;

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::facts::{Facts, Origin, Policy, Unseen};
use crate::{
    config::policy::{AttachMode, Config},
    network::{description::Description, state::StateDir},
};

/// Where to look.
#[derive(Debug)]
pub struct Places<'a> {
    /// The pin directory.
    pub state: &'a StateDir,
    /// The daemon's admin socket.
    pub admin_socket: &'a Path,
    /// A rules file to judge the host by, in place of the policy in force.
    pub rules: Option<(PathBuf, &'a Config)>,
}

/// Looks at everything.
pub fn look(places: Places<'_>) -> Facts {
    let Places { state, admin_socket, rules } = places;
    let mut unseen = Vec::new();
    let (pins, description) = pins::look(state, admin_socket, &mut unseen);
    let devices = devices::look(state, pins.hidden, &mut unseen);
    let policy = match rules {
        Some((path, config)) => Policy::of_file(path, config, &devices),
        None => description.and_then(|description| in_force(&description, &devices)),
    };
    Facts { host: host::look(state.root(), &mut unseen), pins, policy, devices, unseen }
}

fn in_force(description: &Description, devices: &[super::facts::Device]) -> Option<Policy> {
    let wanted = description.interfaces.iter().map(|interface| {
        let mode = match interface.mode.as_str() {
            "native" => AttachMode::Native,
            "generic" => AttachMode::Generic,
            _ => AttachMode::Auto,
        };
        (interface.name.as_str(), mode)
    });
    let network = description.network.as_ref()?;
    Some(Policy::new(Origin::InForce, network, wanted, devices))
}

/// A small file of `/proc` or `/sys` without the line's end; one that is not there is no cause to tell.
fn read(path: impl AsRef<Path>, unseen: &mut Vec<Unseen>) -> Option<String> {
    let path = path.as_ref();
    match fs::read_to_string(path) {
        Ok(text) => Some(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            unseen.push(Unseen { what: path.display().to_string(), why: error.to_string() });
            None
        }
    }
}

#[cfg(test)]
mod tests;
