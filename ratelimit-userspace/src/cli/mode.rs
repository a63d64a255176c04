//! `ratelimit mode`.

use std::io::{self, Write as _};

use clap::ValueEnum;
use ratelimit::admin::schema::{self, ModeAnswer};

use super::{Exit, output::write_json, target::Target};

/// Shed, or only count what would be shed; without a mode: say which it is
///
/// Holds until the rules file says the same or the daemon ends; a reload keeps it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--json prints {mode, changed}

Exit codes:
  0  the mode is as asked for
  1  that would cut your own connection; or no daemon runs, or no policy is in force
  3  this user may not ask the daemon

Examples:
  ratelimit mode
  ratelimit mode monitor
  ratelimit mode enforce --force")]
pub(super) struct Args {
    /// The mode
    #[arg(value_enum)]
    mode: Option<Mode>,
    /// Also where that would cut your own connection
    #[arg(long, requires = "mode")]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Shed
    Enforce,
    /// Count what would be shed, and let it pass
    Monitor,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let daemon = args.target.required()?;
    let answer = if let Some(mode) = args.mode {
        daemon.set_mode(mode.into(), args.force)?
    } else {
        let Some(policy) = daemon.status()?.policy else {
            anyhow::bail!("no policy on packets is in force, so there is no mode")
        };
        ModeAnswer { mode: policy.mode, changed: false }
    };
    let mut out = io::stdout().lock();
    if args.json {
        write_json(&mut out, &answer)?;
    } else {
        let words = match answer.mode {
            schema::Mode::Enforce => "enforce",
            schema::Mode::Monitor => "monitor: nothing is shed, what would be is counted",
        };
        let already = if args.mode.is_some() && !answer.changed { " (as before)" } else { "" };
        writeln!(out, "{words}{already}")?;
    }
    Ok(Exit::Success)
}

impl From<Mode> for schema::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Enforce => Self::Enforce,
            Mode::Monitor => Self::Monitor,
        }
    }
}
