//! Prefix files and map files: a prefix or a value and its label a line.

use std::{
    collections::HashMap,
    hash::Hash,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{NetworkLabels, ValueLabels};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted, Reported},
    list_file::{self, Kind, MAX_ENTRIES},
    value::{self, address},
};

const PREFIXES: Kind = Kind {
    name: "prefix file",
    line: "a prefix and its label, such as `192.0.2.0/24 office`, and comments after `#`",
};
const VALUES: Kind =
    Kind { name: "map file", line: "a value and its label, such as `key-1 gold`, and comments after `#`" };

/// The files read so far: several entries may name the same one.
#[derive(Debug, Default)]
pub(super) struct LabelFiles {
    networks: HashMap<PathBuf, Result<Arc<NetworkLabels>, Reported>>,
    values: HashMap<PathBuf, Result<Arc<ValueLabels>, Reported>>,
}

// === impl LabelFiles ===

impl LabelFiles {
    /// The prefix file that `place` names.
    pub(super) fn networks(
        &mut self,
        path: PathBuf,
        place: Place,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Result<Arc<NetworkLabels>, Reported> {
        if let Some(read) = self.networks.get(&path) {
            return read.clone();
        }
        let read = lines(&path, PREFIXES, place, diagnostics, address::prefix);
        let read = read.map(|prefixes| Arc::new(NetworkLabels { file: path.clone(), prefixes }));
        self.networks.insert(path, read.clone());
        read
    }

    /// The map file that `place` names.
    pub(super) fn values(
        &mut self,
        path: PathBuf,
        place: Place,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Result<Arc<ValueLabels>, Reported> {
        if let Some(read) = self.values.get(&path) {
            return read.clone();
        }
        let read = lines(&path, VALUES, place, diagnostics, |text| Ok(text.to_owned()));
        let read = read.map(|values| Arc::new(ValueLabels { file: path.clone(), values }));
        self.values.insert(path, read.clone());
        read
    }
}

/// What the lines of a file stand for, sorted.
fn lines<T: Clone + Eq + Hash + Ord>(
    path: &Path,
    kind: Kind,
    place: Place,
    diagnostics: &mut Diagnostics<'_>,
    parse: impl Fn(&str) -> Result<T, Mistake>,
) -> Result<Vec<(T, Arc<str>)>, Reported> {
    let mut lines: HashMap<T, u32> = HashMap::new();
    let mut labels: HashMap<String, Arc<str>> = HashMap::new();
    let mut entries = Vec::new();
    let read = list_file::read(path, kind, diagnostics, |entry, number| {
        let mut words = entry.split_ascii_whitespace();
        let (Some(what), Some(label), None) = (words.next(), words.next(), words.next()) else {
            let message = format!("{} is not two words", Quoted(entry));
            return Err(Mistake::new(Code::BadValue, message));
        };
        let (key, label) = (parse(what)?, value::label(label)?);
        if entries.len() >= MAX_ENTRIES {
            let message = format!("the file holds more than {MAX_ENTRIES} entries");
            return Err(Mistake::new(Code::TooMany, message));
        }
        if let Some(line) = lines.insert(key.clone(), number) {
            let message = format!("{} stands at line {line} already", Quoted(what));
            return Err(Mistake::new(Code::DuplicateName, message).expected("each once"));
        }
        let label = labels.entry(label).or_insert_with_key(|label| Arc::from(label.as_str()));
        entries.push((key, Arc::clone(label)));
        Ok(())
    });
    read.map_err(|mistake| diagnostics.error(place, mistake))??;
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}
