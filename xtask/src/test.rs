//! `cargo xtask test`: the ladder, from what needs nothing to what needs root and network namespaces.
//!
//! | level | what | where |
//! |---|---|---|
//! | 1 pure | unit, property, documentation tests; models of the races; the fuzz target compiles | everywhere |
//! | 2 object | the BPF object holds the maps, programs and constants it should | `tests/object*.rs` |
//! | 3 program | the verifier, and frames through the program (`BPF_PROG_TEST_RUN`) | `tests/program*.rs` |
//! | 4 namespaces | real sockets between network namespaces | `tests/namespace*.rs` |
//! | 5 kernels | levels 3 and 4 in part, on other kernels | `test/kernels.rs` |
//!
//! Tests that need root are ignored ones, whatever file they are in: levels 3 and 4 run those too, and
//! none is lost for standing in a file of another name.

mod faults;
mod kernels;

use std::{
    env, fmt,
    io::{BufRead as _, BufReader},
    ops::AddAssign,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::kernels::Kernel;
use crate::{build, line, setup, workspace::Workspace};

/// Runs the test ladder.
#[derive(Args, Debug)]
pub struct Options {
    /// Run only the levels that need no root (and do not fail for leaving out the others).
    #[arg(long)]
    unprivileged: bool,
    /// Run only the test of faults, again and again for this many minutes: restarts, kills, reloads, upgrades
    /// and rollbacks under a flood, each round with another seed.
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["unprivileged", "filter"])]
    soak: Option<u32>,
    /// Run only the tests on other kernels, in QEMU: on all of them, or on those named, as in
    /// `--kernels=6.1,6.12`.
    #[arg(
        long,
        value_name = "VERSIONS",
        value_delimiter = ',',
        num_args = 0..,
        require_equals = true,
        conflicts_with_all = ["unprivileged", "soak"]
    )]
    kernels: Option<Vec<Kernel>>,
    /// Run only tests whose names contain one of these.
    filter: Vec<String>,
}

/// A rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Pure,
    Object,
    Program,
    Namespaces,
}

/// How many tests ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
}

/// Selects the crates that are tested on the host.
const HOST_CRATES: &[&str] = &["--workspace", "--exclude", build::CRATE];

/// Climbs the ladder to the end, whatever fails on the way, and fails if anything did.
pub fn run(workspace: &Workspace, Options { unprivileged, soak, kernels, filter }: &Options) -> Result<()> {
    if let Some(minutes) = soak {
        return faults::soak(workspace, *minutes);
    }
    if let Some(kernels) = kernels {
        return kernels::run(workspace, kernels, filter);
    }
    let privileged = !unprivileged && setup::is_root();
    build::objects(workspace)?;
    if privileged {
        setup::lab_tools()?;
    }
    let mut total = Tally::default();
    let mut lines = Vec::new();
    let mut skipped = false;
    for level in Level::ALL {
        if level.needs_root() && !privileged {
            println!("\n== {level}: skipped, it needs root");
            lines.push(format!("{level}: skipped, it needs root"));
            skipped = true;
            continue;
        }
        println!("\n== {level}");
        let mut tally = level.run(workspace, filter)?;
        if filter.is_empty() {
            tally = tally.or_failed("test");
        }
        lines.push(format!("{level}: {tally}"));
        total += tally;
    }
    println!();
    for line in lines {
        println!("{line}");
    }
    println!("{total}");
    if total.failed > 0 {
        bail!("tests failed");
    }
    if total.passed == 0 {
        bail!("no test has a name with {}", filter.join(" or "));
    }
    if skipped && !unprivileged {
        bail!("levels were skipped: run as root, or accept that with --unprivileged");
    }
    Ok(())
}

// === impl Level ===

impl Level {
    const ALL: [Self; 4] = [Self::Pure, Self::Object, Self::Program, Self::Namespaces];

    fn needs_root(self) -> bool {
        match self {
            Self::Pure | Self::Object => false,
            Self::Program | Self::Namespaces => true,
        }
    }

    /// Which level an integration test belongs to, by its file's name.
    fn of(test: &str) -> Self {
        let named = |prefix| test.starts_with(prefix);
        if named("object") {
            Self::Object
        } else if named("program") {
            Self::Program
        } else if named("namespace") {
            Self::Namespaces
        } else {
            Self::Pure
        }
    }

    fn run(self, workspace: &Workspace, filter: &[String]) -> Result<Tally> {
        let harness = |mut cargo: Command, arguments: &[&str]| {
            cargo.arg("--").args(arguments).args(filter);
            count(&mut cargo)
        };
        let test = |selection: &[&str]| {
            let mut cargo = workspace.cargo();
            cargo.args(["test", "--no-fail-fast"]).args(selection);
            cargo
        };
        // Without a name, cargo would take every test there is.
        let files = |level: Self, arguments: &[&str]| match integration_tests(workspace, level).as_slice() {
            [] => Ok(Tally::default()),
            names => {
                let names: Vec<_> = names.iter().map(|name| format!("--test={name}")).collect();
                let mut cargo = test(HOST_CRATES);
                cargo.args(names);
                harness(cargo, arguments)
            }
        };

        let mut tally = Tally::default();
        match self {
            Self::Pure => {
                let mut units = test(HOST_CRATES);
                units.args(["--lib", "--bins"]);
                tally += harness(units, &[])?;
                tally += files(Self::Pure, &[])?;
                let mut documentation = test(HOST_CRATES);
                documentation.arg("--doc");
                tally += harness(documentation, &[])?;
                if filter.is_empty() {
                    tally += count(&mut models(workspace))?.or_failed("loom model");
                    tally += count(&mut fuzz_target(workspace))?;
                } else if filter.iter().any(|filter| filter.contains("loom")) {
                    tally += harness(models(workspace), &[])?;
                }
            }
            Self::Object => tally += files(self, &["--include-ignored"])?,
            Self::Program => {
                let units =
                    test(&["--package=ratelimit-common", "--package=ratelimit-userspace", "--lib", "--bins"]);
                tally += harness(units, &["--ignored"])?;
                tally += files(self, &["--include-ignored"])?;
            }
            // One at a time: floods of two tests at once would take the processor from each other.
            Self::Namespaces => {
                let units = test(&["--package=xtask", "--lib", "--bins"]);
                tally += harness(units, &["--ignored", "--test-threads=1"])?;
                tally += files(self, &["--include-ignored", "--test-threads=1"])?;
                tally += files(Self::Pure, &["--ignored", "--test-threads=1"])?;
            }
        }
        Ok(tally)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pure => "level 1 (pure)",
            Self::Object => "level 2 (object)",
            Self::Program => "level 3 (program)",
            Self::Namespaces => "level 4 (namespaces)",
        })
    }
}

// === impl Tally ===

impl Tally {
    /// What a line of a test harness's output adds: "test result: ok. 5 passed; 0 failed; 2 ignored; …".
    fn parse(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let number = |noun: &str| {
            counts.split("; ").find_map(|count| count.strip_suffix(noun)?.trim_end().parse().ok())
        };
        Some(Self { passed: number("passed")?, failed: number("failed")? })
    }

    /// Itself, unless nothing ran: tests that are gone, or that no longer compile in, must not look like
    /// tests that pass.
    fn or_failed(self, what: &str) -> Self {
        if self != Self::default() {
            return self;
        }
        eprintln!("error: not one {what} ran");
        Self { passed: 0, failed: 1 }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, Self { passed, failed }: Self) {
        self.passed += passed;
        self.failed += failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed } = self;
        write!(f, "{passed} passed, {failed} failed")
    }
}

/// The names of the host crates' integration tests of a level.
fn integration_tests(workspace: &Workspace, level: Level) -> Vec<&str> {
    let members = workspace.members.iter().filter(|member| member.name != build::CRATE);
    let targets = members.flat_map(|member| &member.targets);
    let tests = targets.filter(|target| target.kind.iter().any(|kind| kind == "test"));
    tests.map(|target| target.name.as_str()).filter(|name| Level::of(name) == level).collect()
}

/// The models of races, which loom explores in place of the machine's own schedule.
///
/// They are the tests with "loom" in their names. The configuration reaches every dependency, so they
/// have a target folder of their own; and they are too slow without optimisation.
fn models(workspace: &Workspace) -> Command {
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    let mut cargo = workspace.cargo();
    cargo
        .args(["test", "--no-fail-fast", "--package=ratelimit-common", "--test=loom"])
        .args(["--config", "profile.dev.opt-level = 2", "--target-dir"])
        .arg(workspace.target.join("loom"))
        .env("RUSTFLAGS", format!("{flags} --cfg loom"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}

/// Compiles the fuzz target, a workspace of its own, without cargo-fuzz and the nightly that it wants.
fn fuzz_target(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    cargo
        .args(["check", "--manifest-path", "ratelimit-common/fuzz/Cargo.toml", "--target-dir"])
        .arg(workspace.target.join("fuzz"));
    cargo
}

/// Runs a test command, shows its output, and adds up its results.
///
/// A command that fails though none of its tests did (it did not compile, say) counts as a failed test.
fn count(command: &mut Command) -> Result<Tally> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start {}", line(command)))?;
    let output = child.stdout.take().context("the output was piped")?;
    let mut tally = Tally::default();
    for text in BufReader::new(output).split(b'\n') {
        let text = text.with_context(|| format!("failed to read the output of {}", line(command)))?;
        // A test may write anything.
        let text = String::from_utf8_lossy(&text);
        println!("{text}");
        if let Some(result) = Tally::parse(&text) {
            tally += result;
        }
    }
    let status = child.wait().with_context(|| format!("failed to wait for {}", line(command)))?;
    if !status.success() {
        eprintln!("error: failed ({status}): {}", line(command));
        tally.failed = tally.failed.max(1);
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_what_harnesses_report() {
        let mut total = Tally::default();
        for line in [
            "running 7 tests",
            "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 10 passed; 3 failed; 0 ignored; 0 measured; 1 filtered out; finished in 1.50s",
            "test passed; failed ... ok",
        ] {
            total += Tally::parse(line).unwrap_or_default();
        }
        assert_eq!(total, Tally { passed: 15, failed: 3 });
        assert_eq!(total.to_string(), "15 passed, 3 failed");
    }

    #[test]
    fn a_command_that_dies_without_a_result_counts_as_failed() {
        let tally = count(Command::new("sh").args(["-c", "exit 101"])).unwrap();
        assert_eq!(tally, Tally { passed: 0, failed: 1 });
        assert_eq!(Tally::default().or_failed("test"), Tally { passed: 0, failed: 1 });
        let reported = "echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored'; exit 101";
        assert_eq!(count(Command::new("sh").args(["-c", reported])).unwrap(), Tally { passed: 1, failed: 2 });
    }

    #[test]
    fn the_file_name_tells_the_level() {
        assert_eq!(Level::of("object"), Level::Object);
        assert_eq!(Level::of("program_rules"), Level::Program);
        assert_eq!(Level::of("namespaces"), Level::Namespaces);
        assert_eq!(Level::of("check_command"), Level::Pure);
    }
}
