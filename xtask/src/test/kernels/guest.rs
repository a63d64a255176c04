//! A kernel that runs the tests, and what it says of them on its serial line.
//!
//! The processor is emulated, also where `/dev/kvm` exists: nested in a virtual machine it may fail half-way.

use std::{
    fmt,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::debian::Files;
use crate::{line, test::Tally};

/// The guest's last words.
pub(super) const DONE: &str = "all tests have run";

/// Far longer than the tests take on an emulated processor.
const PATIENCE: &str = "20m";

/// What a guest said.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) tally: Tally,
    /// The most instructions that the verifier followed for one policy.
    instructions: Option<u32>,
    failed: Vec<String>,
    /// The guest was told that its kernel is too old.
    too_old: bool,
}

/// Boots a kernel and reads what it says to the end.
pub(super) fn boot(kernel: &Files, initramfs: &Path) -> Result<Report> {
    let mut qemu = Command::new("timeout");
    qemu.args([PATIENCE, "qemu-system-x86_64", "-nographic", "-no-reboot", "-m", "3G", "-smp", "2"])
        .args(["-accel", "tcg", "-cpu", "max", "-net", "none", "-kernel"])
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initramfs)
        // A guest that panics reboots, and so ends.
        .args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init"]);
    let mut child = qemu
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start {}", line(&qemu)))?;
    let output = child.stdout.take().context("it is piped")?;
    let mut report = Report::default();
    let mut done = false;
    for text in BufReader::new(output).split(b'\n') {
        let text = text.context("failed to read the guest's serial line")?;
        let text = String::from_utf8_lossy(&text);
        let text = text.trim_end();
        println!("{text}");
        done |= text == DONE;
        report.read(text);
    }
    child.wait().with_context(|| format!("failed to wait for {}", line(&qemu)))?;
    if !done {
        report.fail("the guest itself: it did not come to its end");
    }
    if report.tally == Tally::default() {
        report.fail("the guest itself: not one test ran");
    }
    Ok(report)
}

// === impl Report ===

impl Report {
    /// What a line adds: results of a test harness, what the verifier counted, how an old kernel is refused.
    fn read(&mut self, text: &str) {
        if let Some(tally) = Tally::parse(text) {
            self.tally += tally;
        } else if let Some(name) =
            text.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failed.push(name.to_owned());
        } else if let Some((before, _)) = text.split_once(" instructions verified") {
            let count = before.rsplit(' ').next().and_then(|count| count.parse().ok());
            self.instructions = self.instructions.max(count);
        } else if text.contains(" is too old: ") {
            self.too_old = true;
        } else if text == "refused with exit code 3" && self.too_old {
            self.tally += Tally { passed: 1, failed: 0 };
        } else if text.starts_with("refused with exit code") {
            self.fail("an old kernel is refused with exit code 3 and words");
        }
    }

    fn fail(&mut self, name: &str) {
        self.tally += Tally { passed: 0, failed: 1 };
        self.failed.push(name.to_owned());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tally, instructions, failed, .. } = self;
        write!(f, "{tally}")?;
        if let Some(instructions) = instructions {
            write!(f, ", {instructions} instructions verified at most")?;
        }
        for name in failed {
            write!(f, "\n    failed: {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_line_is_understood() {
        let mut report = Report::default();
        for text in [
            "test layer3::denied ... FAILED",
            "pass, enforce, Kernel: 55245 instructions verified",
            "drop, monitor, Replay: 51802 instructions verified",
            "21749 instructions verified without rules, 42203 for one, 54978 for everything",
            "test result: FAILED. 10 passed; 1 failed; 0 ignored; 0 measured; 1 filtered out; finished in 1.50s",
        ] {
            report.read(text);
        }
        assert_eq!(
            report.to_string(),
            "10 passed, 1 failed, 55245 instructions verified at most\n    failed: layer3::denied"
        );
    }

    #[test]
    fn an_old_kernel_must_be_refused_as_one() {
        let told = |lines: &[&str]| {
            let mut report = Report::default();
            for line in lines {
                report.read(line);
            }
            report.tally
        };
        let (words, code) = ("error: Linux 5.10 is too old: ratelimit needs 6.1", "refused with exit code 3");
        assert_eq!(told(&[words, code]), Tally { passed: 1, failed: 0 });
        assert_eq!(told(&[code]), Tally { passed: 0, failed: 1 });
        assert_eq!(told(&[words, "refused with exit code 1"]), Tally { passed: 0, failed: 1 });
    }
}
