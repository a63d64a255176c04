//! Large maps of a policy, pinned under names that say what is in them: the next generation uses one that
//! holds what it needs instead of filling another. They are complete as soon as they have such a name.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{StateError, entries, generation, open, pin_map, remove_file};

/// How the name of such a pin begins.
const PREFIX: &str = "list-";

/// The pin of the map `name` with contents of this digest.
pub(in crate::network) fn path(directory: &Path, name: &str, digest: &str) -> PathBuf {
    directory.join(format!("{PREFIX}{name}-{digest}"))
}

/// All of them.
pub(super) fn all(directory: &Path) -> Result<BTreeSet<PathBuf>, StateError> {
    let is_list = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
    };
    Ok(entries(directory)?.into_iter().filter(is_list).collect())
}

/// Pins those of one directory in another as well.
pub(super) fn carry(from: &Path, to: &Path) -> Result<(), StateError> {
    for path in all(from)? {
        if let (Some(name), Some(map)) = (path.file_name(), open(&path)?) {
            pin_map(&map, &to.join(name))?;
        }
    }
    Ok(())
}

/// Removes those that are not in `known`.
pub(super) fn forget(directory: &Path, known: &BTreeSet<PathBuf>) -> Result<(), StateError> {
    all(directory)?.difference(known).try_for_each(|path| remove_file(path))
}

/// Removes those that the program which runs does not use.
pub(super) fn retire(directory: &Path) -> Result<(), StateError> {
    let program = directory.join(generation::PROGRAM);
    all(directory)?
        .iter()
        .filter(|path| !generation::uses(&program, path))
        .try_for_each(|path| remove_file(path))
}
