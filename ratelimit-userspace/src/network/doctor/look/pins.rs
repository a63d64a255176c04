//! What is pinned.

use std::{fs, io, os::unix::net::UnixStream, path::Path};

use ratelimit_common::record::{ABI_VERSION, Event};

use crate::network::{
    counters::CounterMaps,
    description::Description,
    doctor::facts::{Link, Pins, Unseen},
    links::Links,
    program::OBJECT,
    state::{Difference, Layout, STATE_MAPS, StateDir, StateError, expected, open, staged_names},
    trial,
};

pub(super) fn look(
    state: &StateDir,
    admin_socket: &Path,
    unseen: &mut Vec<Unseen>,
) -> (Pins, Option<Description>) {
    let mut pins = Pins {
        root: state.root().to_owned(),
        version: ABI_VERSION,
        socket_path: admin_socket.to_owned(),
        ..Pins::default()
    };
    match state.versions() {
        Ok(directories) => pins.versions = directories.iter().filter_map(|path| version(path)).collect(),
        Err(error) => {
            pins.hidden = true;
            unseen.push(Unseen {
                what: format!("what is pinned in {}", state.root().display()),
                why: words(&error),
            });
            return (pins, None);
        }
    }
    let mut tell = |what: &str, error: &dyn std::error::Error| {
        unseen.push(Unseen { what: what.to_owned(), why: words(error) });
    };
    match Links::new(state.links()).standing() {
        Ok(standing) => {
            let link = |it: crate::network::links::Standing| Link {
                interface: it.name,
                program_id: it.program_id,
                alive: it.mode.is_some(),
            };
            pins.links = standing.into_iter().map(link).collect();
        }
        Err(error) => tell("the pinned links", &error),
    }
    match misfits(state) {
        Ok(misfits) => pins.misfits = misfits,
        Err(error) => tell("the layout of the pinned maps", &error),
    }
    let description = Description::read(&state.state()).unwrap_or_else(|error| {
        tell("the policy in force", &error);
        None
    });
    if let Some(description) = &description {
        pins.program_id = Some(description.program_id);
        pins.loaded_by = Some(description.version.clone());
        match CounterMaps::pinned(&state.state()).and_then(|maps| maps.read(&[])) {
            Ok(counters) => {
                let count = |event: Event| {
                    counters.events.iter().find(|it| it.event == event.name()).map_or(0, |it| it.count)
                };
                (pins.displaced, pins.table_full) = (count(Event::LiveEvicted), count(Event::TableFull));
            }
            Err(error) => tell("the counters", &error),
        }
    }
    pins.leftovers = staged_names(&state.state()).unwrap_or_default();
    pins.daemon = state.holder();
    pins.socket = answers(admin_socket);
    pins.trial = trial::is_on(state);
    (pins, description)
}

fn version(directory: &Path) -> Option<u32> {
    directory.file_name()?.to_str()?.strip_prefix('v')?.parse().ok()
}

/// Pinned state maps that differ from what this build expects, but for what a start changes itself.
fn misfits(state: &StateDir) -> Result<Vec<(String, String)>, StateError> {
    let mut misfits = Vec::new();
    for (name, expected) in expected(OBJECT, &STATE_MAPS)? {
        let path = state.state().join(name);
        let Some(map) = open(&path)? else { continue };
        let layout = Layout::of(&map).map_err(|source| StateError::Map { verb: "inspect", path, source })?;
        match layout.difference(&expected) {
            None | Some(Difference::Entries { .. }) => {}
            Some(difference) => misfits.push((name.to_owned(), difference.to_string())),
        }
    }
    Ok(misfits)
}

/// Whether somebody listens at the admin socket.
fn answers(path: &Path) -> Option<Result<(), String>> {
    match UnixStream::connect(path) {
        Ok(_) => Some(Ok(())),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        Err(_) if !fs::exists(path).unwrap_or(true) => Some(Err("there is no such socket".to_owned())),
        Err(error) => Some(Err(error.to_string())),
    }
}

fn words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
