//! What the `cargo xtask` verbs are made of: one module a verb, each with its `Options` and its `run`.
//!
//! It is a library so that the tests of other crates can share its test bed. It depends on no other
//! crate of the workspace: it must build before the BPF object exists.

pub mod bench;
pub mod build;
pub mod demo;
pub mod hammered;
pub mod lab;
pub mod lint;
pub mod setup;
pub mod test;
pub mod toolchain;
pub mod verify_object;
pub mod workspace;

use std::{
    fmt::Write as _,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// Runs a command to its end with this process's standard streams.
///
/// A failure names the whole command line, so that it can be typed again.
pub fn exec(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("failed to start {}", line(command)))?;
    if !status.success() {
        bail!("failed ({status}): {}", line(command));
    }
    Ok(())
}

/// Runs a command and returns what it wrote to standard output; its standard error is shown.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let Output { status, stdout, .. } =
        output.with_context(|| format!("failed to start {}", line(command)))?;
    if !status.success() {
        bail!("failed ({status}): {}", line(command));
    }
    String::from_utf8(stdout).with_context(|| format!("the output of {} is not UTF-8", line(command)))
}

/// A command as one would type it: with the variables it sets, without those it only keeps out.
pub fn line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(line, "{}={} ", name.display(), quoted(&value.to_string_lossy()));
        }
    }
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    line + &words.join(" ")
}

/// A word as a POSIX shell would have to read it.
fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_=+./,:@%".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_can_be_typed_again() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3", "it's"]).env("COLOUR", "deep red").env_remove("CARGO");
        let err = exec(&mut command).unwrap_err().to_string();
        assert_eq!(err, r"failed (exit status: 3): COLOUR='deep red' sh -c 'exit 3' 'it'\''s'");
    }

    #[test]
    fn reads_standard_output() {
        assert_eq!(read(Command::new("printf").arg("one")).unwrap(), "one");
        assert!(read(Command::new("sh").args(["-c", "echo two; exit 1"])).is_err());
    }
}
