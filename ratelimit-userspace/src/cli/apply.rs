//! `ratelimit apply`.

mod trial;

use std::{
    fs,
    io::{self, IsTerminal as _, Read as _, Write as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use clap::Subcommand;
use ratelimit::{
    admin::{
        client::Client,
        schema::{Applied, text},
    },
    network::{
        state::StateDir,
        trial::{self as pinned, RestoreError},
    },
};

use self::trial::Decision;
use super::{
    Exit,
    output::{number, write_json},
    reload::write_warnings,
    target::Target,
};

/// Put another rules file in force, if asked to on trial
///
/// The daemon reads the text as if it stood in its own rules file, and writes it there when it stays. With
/// --confirm what was in force before comes back unless the new policy is confirmed in time: at a terminal by
/// Enter or y, else by `ratelimit apply confirm`. So a policy that cuts your own connection ends by itself, also when
/// the daemon or the terminal dies.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
--json prints {id, deadline, changed, rules, warnings, milliseconds}; it does not wait for Enter

Exit codes:
  0  it is in force; at a terminal with --confirm: and confirmed
  1  it is wrong, would cut your own connection, or was rolled back; or no daemon runs
  2  bad usage, or a file that cannot be read
  3  this user may not ask the daemon

Examples:
  ratelimit apply new.yaml --confirm 60s
  ratelimit apply new.yaml
  generate-rules | ratelimit apply - --confirm 2m --json
  ratelimit apply confirm
  ratelimit apply rollback"
)]
pub(super) struct Args {
    /// The rules file; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// Go back unless it is confirmed within this time, such as 60s (5s to 1h)
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    confirm: Option<Duration>,
    /// Also where the policy would cut your own connection
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    end: Option<End>,
}

/// How a trial ends.
#[derive(Debug, Subcommand)]
enum End {
    /// Keep the policy on trial
    Confirm(Trial),
    /// Go back to the policy before, now
    Rollback(Trial),
}

#[derive(Debug, clap::Args)]
struct Trial {
    /// The trial, as apply told it; the one that runs if absent
    #[arg(value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    match (&args.end, &args.file) {
        (Some(End::Confirm(trial)), _) => trial.confirm(),
        (Some(End::Rollback(trial)), _) => trial.roll_back(),
        (None, Some(file)) => apply(args, file),
        // Clap asks for one of them.
        (None, None) => anyhow::bail!("which file?"),
    }
}

fn apply(args: &Args, file: &PathBuf) -> anyhow::Result<Exit> {
    let from_stdin = file.as_os_str() == "-";
    let yaml = if from_stdin {
        let mut yaml = String::new();
        io::stdin().read_to_string(&mut yaml).context("failed to read standard input")?;
        yaml
    } else {
        fs::read_to_string(file).map_err(|error| super::Unreadable::new(file, error))?
    };
    let daemon = args.target.required()?;
    let applied = daemon.apply(yaml, args.confirm, args.force)?;
    if args.json {
        write_json(&mut io::stdout().lock(), &applied)?;
        return Ok(Exit::Success);
    }
    let Applied { id, deadline, changed, rules, warnings, milliseconds } = &applied;
    write_warnings(warnings)?;
    let as_before = if *changed { "" } else { ", which says what was in force already" };
    let mut out = io::stdout().lock();
    writeln!(out, "in force after {milliseconds} ms: {} rules{as_before}", number(rules))?;
    let Some((deadline, time)) = deadline.zip(args.confirm) else { return Ok(Exit::Success) };
    if from_stdin || !io::stdin().is_terminal() {
        writeln!(
            out,
            "on trial until {}: `ratelimit apply confirm {id}` keeps it, `ratelimit apply rollback {id}` goes back",
            text::time(deadline)
        )?;
        return Ok(Exit::Success);
    }
    drop(out);
    settle(&daemon, id, time)
}

/// Asks the person at the terminal.
fn settle(daemon: &Client, id: &str, time: Duration) -> anyhow::Result<Exit> {
    trial::forget_typed();
    let mut out = io::stdout().lock();
    let words = humantime::format_duration(time);
    writeln!(
        out,
        "Enter or y keeps it; n, Ctrl-C, or nothing within {words}, goes back to what was in force before"
    )?;
    out.flush()?;
    let decision =
        trial::wait(time).context("failed to wait for an answer; the policy before comes back by itself")?;
    match decision {
        Decision::Keep => {
            daemon.confirm(id)?;
            writeln!(out, "confirmed")?;
            Ok(Exit::Success)
        }
        Decision::GoBack => {
            daemon.roll_back(id)?;
            writeln!(out, "rolled back")?;
            Ok(Exit::Failure)
        }
        Decision::None => {
            writeln!(out, "the time is over: what was in force before comes back")?;
            Ok(Exit::Failure)
        }
    }
}

/// Goes back by the pins alone.
fn without_daemon(state: &StateDir) -> anyhow::Result<()> {
    if !pinned::is_on(state) {
        return Err(RestoreError::NoTrial.into());
    }
    let _lock = state.open()?;
    pinned::restore(state)?;
    Ok(())
}

// === impl Trial ===

impl Trial {
    fn confirm(&self) -> anyhow::Result<Exit> {
        let daemon = self.target.required()?;
        daemon.confirm(&self.id(&daemon)?)?;
        writeln!(io::stdout().lock(), "confirmed")?;
        Ok(Exit::Success)
    }

    fn roll_back(&self) -> anyhow::Result<Exit> {
        match self.target.daemon()? {
            Some(daemon) => daemon.roll_back(&self.id(&daemon)?)?,
            // What a daemon left that was killed; a start would read the rules file again, too.
            None => without_daemon(&self.target.state())?,
        }
        writeln!(io::stdout().lock(), "rolled back: what was in force before is again")?;
        Ok(Exit::Success)
    }

    /// The trial that is meant.
    fn id(&self, daemon: &Client) -> anyhow::Result<String> {
        if let Some(id) = &self.id {
            return Ok(id.clone());
        }
        let trial = daemon.status()?.trial;
        trial
            .map(|trial| trial.id)
            .context("no policy is on trial: it was confirmed or undone already, or its time is over")
    }
}
