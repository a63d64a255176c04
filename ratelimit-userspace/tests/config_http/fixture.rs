//! Rules files with their rule files, in directories of their own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ratelimit::config::{
    self, Failure, Loaded,
    diagnostic::{Code, Diagnostic},
    http::{Domain, Http, Identify, Limit},
};
use tempfile::TempDir;

/// A rule file with which a rules file is complete.
pub(crate) const RULES: &str =
    "domain: api\ndescriptors: { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }\n";

/// A directory with `main.yaml` and other files.
pub(crate) struct Files {
    directory: TempDir,
}

/// A place in a file: its name, line and column.
pub(crate) type Place = (String, Option<u32>, Option<u32>);

/// A finding: in which file, where, and of which kind.
pub(crate) type Found = (String, Option<u32>, Option<u32>, Code);

impl Files {
    /// Writes files; directories are made as needed. A `«` in a file marks a place and is left out.
    pub(crate) fn new(files: &[(&str, &str)]) -> (Self, Vec<Place>) {
        let directory = tempfile::tempdir().unwrap();
        let mut places = Vec::new();
        for (name, text) in files {
            let (clean, marks) = marked(text);
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, clean).unwrap();
            places.extend(
                marks.into_iter().map(|(line, column)| ((*name).to_owned(), Some(line), Some(column))),
            );
        }
        (Self { directory }, places)
    }

    /// `main.yaml` with this `http` section, and one rule file.
    pub(crate) fn section(section: &str) -> Self {
        Self::new(&[("main.yaml", &main(section)), ("rules.d/api.yaml", RULES)]).0
    }

    /// `main.yaml` with only this rule file.
    pub(crate) fn rules(rules: &str) -> Self {
        Self::new(&[("main.yaml", &main("")), ("rules.d/api.yaml", rules)]).0
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        config::load(&self.path("main.yaml"))
    }

    pub(crate) fn http(&self) -> Http {
        self.load().unwrap_or_else(|failure| panic!("{failure}")).config.http.unwrap()
    }

    pub(crate) fn warnings(&self) -> Vec<Diagnostic> {
        self.load().unwrap_or_else(|failure| panic!("{failure}")).warnings
    }

    pub(crate) fn errors(&self) -> Vec<Diagnostic> {
        match self.load() {
            Err(Failure::Invalid { errors, .. }) => errors,
            other => panic!("it is not invalid: {other:?}"),
        }
    }

    /// Findings with the names of files as they were given.
    pub(crate) fn places(&self, findings: &[Diagnostic]) -> Vec<Found> {
        let directory = format!("{}/", self.directory.path().display());
        let name = |file: &str| file.strip_prefix(&directory).unwrap_or(file).to_owned();
        findings.iter().map(|found| (name(&found.file), found.line, found.column, found.code)).collect()
    }
}

/// A rules file with rule files in `rules.d` and these other keys of `http`.
pub(crate) fn main(keys: &str) -> String {
    if keys.is_empty() {
        "http:\n  rules: rules.d\n".to_owned()
    } else {
        format!("http:\n  rules: rules.d\n  {keys}\n")
    }
}

/// The `http` section with these keys besides `rules`.
pub(crate) fn http(keys: &str) -> Http {
    Files::section(keys).http()
}

/// The one domain of a rule file.
pub(crate) fn domain(rules: &str) -> Domain {
    Files::rules(rules).http().domains.remove(0)
}

/// The one `identify` item with these keys besides its domain.
pub(crate) fn item(keys: &str) -> Identify {
    http(&format!("identify: {{ domain: api, {keys} }}")).identify.remove(0)
}

/// The limit that a `rate_limit` with these keys comes to.
pub(crate) fn limit(keys: &str) -> Limit {
    let domain = domain(&format!("domain: api\ndescriptors: {{ key: a, rate_limit: {{ {keys} }} }}\n"));
    let rule = domain.descriptors[0].rule.as_ref().unwrap();
    (**rule.limit.as_ref().unwrap()).clone()
}

/// Exactly these errors, at the marks in the files, which are read in this order.
#[track_caller]
pub(crate) fn refused(files: &[(&str, &str)], codes: &[Code]) -> Vec<Diagnostic> {
    let (directory, places) = Files::new(files);
    let errors = directory.errors();
    let wanted: Vec<_> = places
        .into_iter()
        .zip(codes)
        .map(|((file, line, column), code)| (file, line, column, *code))
        .collect();
    assert_eq!(directory.places(&errors), wanted, "{files:?}\n{errors:#?}");
    assert_eq!(codes.len(), wanted.len(), "a mark for each code");
    for error in &errors {
        let told = error.expected.is_some() || error.code == Code::Syntax;
        assert!(!error.message.is_empty() && told, "{error:#?}");
    }
    errors
}

/// One error in the `http` section, and what was probably meant.
#[track_caller]
pub(crate) fn section_refused(keys: &str, code: Code, nearest: Option<&str>) {
    let errors = refused(&[("main.yaml", &main(keys)), ("rules.d/api.yaml", RULES)], &[code]);
    assert_eq!(errors[0].nearest.as_deref(), nearest, "{keys}\n{errors:#?}");
}

/// One error in a rule file, and what was probably meant.
#[track_caller]
pub(crate) fn rules_refused(rules: &str, code: Code, nearest: Option<&str>) {
    let errors = refused(&[("main.yaml", &main("")), ("rules.d/api.yaml", rules)], &[code]);
    assert_eq!(errors[0].nearest.as_deref(), nearest, "{rules}\n{errors:#?}");
}

/// One error in a `rate_limit`, and what was probably meant.
#[track_caller]
pub(crate) fn limit_refused(keys: &str, code: Code, nearest: Option<&str>) {
    rules_refused(
        &format!("domain: api\ndescriptors:\n  - key: a\n    rate_limit: {{ {keys} }}\n"),
        code,
        nearest,
    );
}

/// One error in an `identify` item, and what was probably meant.
#[track_caller]
pub(crate) fn item_refused(keys: &str, code: Code, nearest: Option<&str>) {
    section_refused(&format!("identify: {{ domain: api, {keys} }}"), code, nearest);
}

/// A file of `tests/config/http`.
pub(crate) fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/http").join(name)
}

/// Cuts the marks out of a text and says where they were.
fn marked(text: &str) -> (String, Vec<(u32, u32)>) {
    let (mut clean, mut places, mut line, mut column) = (String::new(), Vec::new(), 1, 1);
    for character in text.chars() {
        match character {
            '«' => places.push((line, column)),
            '\n' => {
                clean.push('\n');
                (line, column) = (line + 1, 1);
            }
            _ => {
                clean.push(character);
                column += 1;
            }
        }
    }
    (clean, places)
}
