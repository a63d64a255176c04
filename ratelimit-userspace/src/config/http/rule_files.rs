//! The rule files that `rules` names.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use super::{Compatibility, Domain, domain};
use crate::config::{
    MAX_FILE_BYTES,
    diagnostic::{Code, Diagnostic, Diagnostics, Mistake, Place, Quoted, Reported},
    document,
    file::{Node, Value},
    read_regular,
    section::{Section, all, scalar},
    shape,
    value::{self, choice},
    warnings,
};

/// Rule files that one `http` section may load.
const MAX_FILES: usize = 10_000;

/// The domains whose names are known, and where they stand, whether or not the rest of their files is
/// right.
#[derive(Debug)]
pub(super) struct Domains {
    names: BTreeMap<String, (PathBuf, Place)>,
    /// All rule files have been found, and the name of each of their domains is known.
    complete: bool,
}

/// Directories and files, as resolved, and the domains in them.
type Rules = (Vec<PathBuf>, Vec<Domain>);

/// A directory or a file that `rules` names.
struct Named {
    place: Place,
    path: PathBuf,
    compatibility: Compatibility,
}

/// Reads all rule files.
pub(super) fn read(
    section: &Section<'_>,
    directory: &Path,
    diagnostics: &mut Diagnostics<'_>,
) -> (Result<Rules, Reported>, Domains) {
    let mut domains = Domains { names: BTreeMap::new(), complete: true };
    let rules = rules(section, directory, &mut domains, diagnostics);
    (rules, domains)
}

fn rules(
    section: &Section<'_>,
    directory: &Path,
    domains: &mut Domains,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Rules, Reported> {
    let nodes = section.some_nodes("rules", diagnostics);
    let nodes = section.required("rules", diagnostics, nodes).inspect_err(|_| domains.complete = false)?;
    let mut seen = HashMap::new();
    let mut found = Vec::new();
    let named = all(nodes.iter().map(|node| {
        let named = named(node, section.expected("rules"), directory, diagnostics)?;
        let files = files(&named.path).and_then(|files| unseen(files, named.place, &mut seen));
        found.push((files.map_err(|mistake| diagnostics.error(named.place, mistake))?, named.compatibility));
        if named.compatibility == Compatibility::Envoy {
            warnings::http::envoy(named.place, &named.path, diagnostics);
        }
        Ok(named.path)
    }));
    domains.complete = named.is_ok();
    let read = all(found
        .into_iter()
        .flat_map(|(files, compatibility)| files.into_iter().map(move |file| (file, compatibility)))
        .map(|(file, compatibility)| load(file, compatibility, domains, diagnostics)));
    Ok((named?, read?))
}

/// Reads one of `rules`.
fn named(
    node: &Node,
    expected: &str,
    directory: &Path,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Named, Reported> {
    if !matches!(node.value, Value::Mapping(_)) {
        let path = scalar(node, expected, diagnostics, value::path(directory))?;
        return Ok(Named { place: node.place, path, compatibility: Compatibility::default() });
    }
    let section = Section::open(&shape::http::RULES, node, diagnostics)?;
    let path = section.one("path", diagnostics, value::path(directory));
    let path = section.required("path", diagnostics, path);
    let compatibility = section.one(
        "compatibility",
        diagnostics,
        choice(&[("native", Compatibility::Native), ("envoy", Compatibility::Envoy)]),
    );
    Ok(Named {
        place: section.value_place("path"),
        path: path?,
        compatibility: compatibility?.unwrap_or_default(),
    })
}

/// The rule files of a directory, by name, or the one file that a path is.
fn files(path: &Path) -> Result<Vec<PathBuf>, Mistake> {
    let shown = path.display();
    let unreadable = |error: io::Error| {
        Mistake::new(Code::UnreadableFile, format!("{shown} cannot be read: {error}"))
            .expected("a directory of rule files, or one, relative to the directory of the rules file")
    };
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        // What a broken link stands for cannot be told, so it is reported when it is read.
        let directory = fs::metadata(&file).is_ok_and(|metadata| metadata.is_dir());
        if is_rule_file(file.file_name().unwrap_or_default()) && !directory {
            files.push(file);
        }
    }
    if files.is_empty() {
        let message = format!("no rule file stands in {shown}");
        return Err(Mistake::new(Code::EmptyList, message)
            .expected("a file whose name ends in .yaml or .yml and does not start with a dot"));
    }
    files.sort_unstable();
    Ok(files)
}

/// A Kubernetes volume shows each file twice: by its name, which is a link, and in the directory `..data`.
fn is_rule_file(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    !name.starts_with(b".") && (name.ends_with(b".yaml") || name.ends_with(b".yml"))
}

/// Notes where files are named, once each.
fn unseen(
    files: Vec<PathBuf>,
    place: Place,
    seen: &mut HashMap<PathBuf, Place>,
) -> Result<Vec<PathBuf>, Mistake> {
    for file in &files {
        if let Some(Place { line, column }) = seen.insert(file.clone(), place) {
            let message = format!("{} is named at line {line}, column {column} already", file.display());
            return Err(Mistake::new(Code::DuplicateName, message).expected("each rule file once"));
        }
    }
    if seen.len() > MAX_FILES {
        let message = format!("`rules` names {} files", seen.len());
        return Err(Mistake::new(Code::TooMany, message).expected(format!("at most {MAX_FILES} rule files")));
    }
    Ok(files)
}

/// Reads a rule file. Its findings have their places in it.
fn load(
    path: PathBuf,
    compatibility: Compatibility,
    domains: &mut Domains,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Domain, Reported> {
    let file = path.display().to_string();
    let bytes = match read_regular(&path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => {
            domains.complete = false;
            let mistake = Mistake::new(Code::UnreadableFile, format!("the file cannot be read: {error}"))
                .expected("a rule file that this user may read");
            return Err(diagnostics.error_elsewhere(Diagnostic::whole_file(&file, mistake)));
        }
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut own = Diagnostics::new(&file, &text);
    let root = document(&bytes, &text, "`domain` and `descriptors`", &mut own);
    let read = match root {
        Ok(root) => domain::read(&root, path, compatibility, domains, &mut own),
        Err(reported) => {
            domains.complete = false;
            Err(reported)
        }
    };
    diagnostics.absorb(own);
    read
}

// === impl Domains ===

impl Domains {
    /// Notes a name that has been read, once each; `Err` where it could not be.
    pub(super) fn note(
        &mut self,
        name: Result<String, Reported>,
        file: &Path,
        place: Place,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Result<String, Reported> {
        let name = name.inspect_err(|_| self.complete = false)?;
        if let Some((other, Place { line, column })) = self.names.get(&name) {
            let message = format!(
                "the domain {} stands in {} already, at line {line}, column {column}",
                Quoted(&name),
                other.display()
            );
            let mistake = Mistake::new(Code::DuplicateName, message).expected("each domain in one file");
            return Err(diagnostics.error(place, mistake));
        }
        self.names.insert(name.clone(), (file.to_owned(), place));
        Ok(name)
    }

    /// Whether a domain exists; `None` where that cannot be told.
    pub(super) fn has(&self, name: &str) -> Option<bool> {
        if self.names.contains_key(name) { Some(true) } else { self.complete.then_some(false) }
    }

    /// All names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }
}
