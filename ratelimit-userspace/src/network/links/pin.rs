//! The name of a pinned link: `<ifindex>-<interface>`.

use std::{
    io,
    path::{Path, PathBuf},
};

use aya::programs::links::{FdLink, PinnedLink};

use crate::network::interfaces::{Interface, Mode};

/// A link pinned in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The interface's index when it was pinned.
    pub index: u32,
    /// The interface's name when it was pinned.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// The program that the link carries; `None` when the file holds no readable link.
    pub program_id: Option<u32>,
}

/// All pins in `directory`, in order of their indexes; none when it does not exist. Files whose names are
/// not ours are left out.
pub(super) fn read(directory: &Path) -> io::Result<Vec<Pin>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut pins = Vec::new();
    for entry in entries {
        pins.extend(Pin::open(&entry?.path()));
    }
    pins.sort_by(|one, other| (one.index, &one.name).cmp(&(other.index, &other.name)));
    Ok(pins)
}

/// The file name for a link. The BPF file system reserves names with dots, which names of VLAN interfaces
/// have, so a dot is written as `%2e` and `%` as `%25`.
pub(super) fn file_name(index: u32, interface: &str) -> String {
    format!("{index}-{}", interface.replace('%', "%25").replace('.', "%2e"))
}

fn parse(file_name: &str) -> Option<(u32, String)> {
    let (index, name) = file_name.split_once('-')?;
    let name = name.replace("%2e", ".").replace("%25", "%");
    Some((index.parse().ok()?, name))
}

// === impl Pin ===

impl Pin {
    /// The pin in the file at `path`, if its name is that of a pin.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let (index, name) = parse(path.file_name()?.to_str()?)?;
        let program_id = PinnedLink::from_pin(path)
            .ok()
            .and_then(|link| FdLink::from(link).info().ok())
            .map(|info| info.program_id());
        Some(Self { index, name, path: path.to_owned(), program_id })
    }

    /// The name of the interface that the file at `path` is for.
    pub(super) fn name_in(path: &Path) -> Option<String> {
        parse(path.file_name()?.to_str()?).map(|(_, name)| name)
    }

    /// The mode in which this link runs on `interface`, if it does: the index is its own and the program
    /// there is the link's. The name may have changed.
    pub(super) fn mode_on(&self, interface: &Interface) -> Option<Mode> {
        let program_id = self.program_id.filter(|_| self.index == interface.index)?;
        interface.programs.iter().find(|program| program.program_id == program_id).map(|program| program.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_file_system() {
        for name in ["eth0", "eth0.100", "a-b", "100%", "%2e", "br-1.2.3"] {
            let file = file_name(12, name);
            assert!(!file.contains('.'), "{file}");
            assert_eq!(parse(&file), Some((12, name.to_owned())), "{file}");
        }
    }

    #[test]
    fn other_files_are_no_pins() {
        for file in ["eth0", "x-eth0", "-eth0", "notes"] {
            assert_eq!(parse(file), None, "{file}");
        }
    }
}
