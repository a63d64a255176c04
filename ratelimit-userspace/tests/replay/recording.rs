//! A capture and a rules file on disk, and what `ratelimit replay` says of them.

use std::{
    ffi::OsStr,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use xtask::lab::Directory;

pub(crate) struct Recording {
    directory: Directory,
}

/// The outcome of a run.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

// === impl Recording ===

impl Recording {
    /// `rules` is a `network:` section in flow style, without its braces; there are no interfaces.
    pub(crate) fn new(rules: &str, capture: &[u8]) -> Self {
        let recording = Self { directory: Directory::new("replay").expect("a directory") };
        let rules = format!("network: {{ sources: {{ capacity: 1024 }}, {rules} }}\n");
        fs::write(recording.rules(), rules).expect("it can be written");
        fs::write(recording.capture(), capture).expect("it can be written");
        recording
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    pub(crate) fn rules(&self) -> PathBuf {
        self.directory.path().join("rules.yaml")
    }

    pub(crate) fn capture(&self) -> PathBuf {
        self.directory.path().join("capture")
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit"));
        command.arg("replay").arg(self.capture()).arg("--config").arg(self.rules());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::new(self.command().args(arguments).output().expect("it runs"))
    }

    /// The lines of `--json`, the last of which is the summary; the run must succeed.
    pub(crate) fn json(&self) -> (Vec<Value>, Value) {
        let outcome = self.run(&["--json"]);
        assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
        outcome.lines()
    }
}

// === impl Outcome ===

impl Outcome {
    pub(crate) fn new(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    pub(crate) fn of(arguments: &[impl AsRef<OsStr>]) -> Self {
        let output = Command::new(env!("CARGO_BIN_EXE_ratelimit")).arg("replay").args(arguments).output();
        Self::new(output.expect("it runs"))
    }

    /// The lines of `--json`: one a packet, and the summary.
    pub(crate) fn lines(&self) -> (Vec<Value>, Value) {
        let parse = |line| serde_json::from_str::<Value>(line).expect("a line of JSON");
        let mut lines: Vec<_> = self.out.lines().map(parse).collect();
        let last = lines.pop().expect("there is a summary");
        assert_eq!(last.as_object().expect("an object").keys().collect::<Vec<_>>(), ["summary"]);
        assert!(lines.iter().all(|line| line.get("summary").is_none()));
        (lines, last["summary"].clone())
    }
}
