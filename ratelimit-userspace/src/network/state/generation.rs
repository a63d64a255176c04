//! The directories of all versions: which of them holds what runs, and what an interrupted change left.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use aya::{maps::MapInfo, programs::ProgramInfo};

use super::{StateDir, StateError, entries};
use crate::network::{description::Description, next};

/// The program that runs.
pub(super) const PROGRAM: &str = "program";

/// How the name of a pin ends whose generation does not run yet. The BPF file system reserves names with
/// dots.
const STAGED: &str = "-next";

/// The pin of `name` while its generation does not run yet.
pub(in crate::network) fn staged(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}{STAGED}"))
}

/// Gives all that is staged its name: its generation runs. The program comes last: as long as it is staged,
/// this can be taken up again. Just before it the map [`next`] does, which the program before needs as long
/// as it may come back, and which is of no use to a program that has another.
pub(super) fn finish(directory: &Path) -> io::Result<()> {
    let mut names = staged_names(directory)?;
    names.sort_by_key(|name| (name == PROGRAM, name == next::NAME));
    for name in names {
        let (from, to) = (staged(directory, &name), directory.join(&name));
        let next = directory.join(next::NAME);
        if name == PROGRAM && !uses(&from, &next) {
            match fs::remove_file(next) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(from, to)?;
    }
    Ok(())
}

/// Whether a pinned program has a pinned map.
pub(super) fn uses(program: &Path, map: &Path) -> bool {
    let maps = ProgramInfo::from_pin(program).and_then(|program| program.map_ids()).ok().flatten();
    let map = MapInfo::from_pin(map).ok().map(|map| map.id());
    map.is_some_and(|map| maps.is_some_and(|maps| maps.contains(&map)))
}

/// Removes all that is staged: its generation does not run.
pub(super) fn discard(directory: &Path) -> io::Result<()> {
    staged_names(directory)?.iter().try_for_each(|name| fs::remove_file(staged(directory, name)))
}

/// The names that staged pins will have.
pub(in crate::network) fn staged_names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(STAGED)).map(str::to_owned));
    }
    Ok(names)
}

/// The directory of the generation that runs, of whatever version; `None` when none ever did. `attached` are
/// the programs on interfaces.
///
/// A change that was interrupted is finished if its program had come to every interface, and else undone
/// (another version's is left to it: it is not in the way).
pub(super) fn current(state: &StateDir, attached: &BTreeSet<u32>) -> Result<Option<PathBuf>, StateError> {
    let own = state.state();
    let mut candidates = Vec::new();
    for directory in state.versions()? {
        let runs = |id: Option<u32>| id.is_some_and(|id| attached.contains(&id));
        let next = id(&staged(&directory, PROGRAM));
        let settled = if next.is_some_and(|next| attached.iter().eq([&next])) {
            finish(&directory)
        } else if directory == own {
            discard(&directory)
        } else {
            Ok(())
        };
        settled.map_err(|source| StateError::File { verb: "tidy", path: directory.clone(), source })?;

        let program = id(&directory.join(PROGRAM));
        let description = Description::read(&directory).ok().flatten();
        if program.is_some() || description.is_some() {
            let described = description.as_ref().map(|description| description.program_id);
            let loaded_at = description.map(|description| description.loaded_at_boottime);
            candidates.push((runs(program) || runs(described), loaded_at, directory == own, directory));
        }
    }
    // Without interfaces that tell: the one that was loaded last.
    Ok(candidates.into_iter().max().map(|(.., directory)| directory))
}

/// The id of a pinned program.
fn id(path: &Path) -> Option<u32> {
    ProgramInfo::from_pin(path).ok().map(|program| program.id())
}

/// Removes all pins in a directory.
pub(super) fn clear(directory: &Path) -> Result<(), StateError> {
    entries(directory)?.iter().try_for_each(|path| super::remove_file(path))
}
