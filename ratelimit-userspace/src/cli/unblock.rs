//! `ratelimit unblock`.

use std::io::{self, Write as _};

use ipnet::IpNet;
use ratelimit::{
    config,
    network::{blocks::Blocks, overrides::Overrides},
};
use serde::Serialize;

use super::{
    Exit,
    blocks::{self, Filter, Who},
    output::{number, write_json},
    target::Target,
};

/// End blocks before their time
///
/// A prefix ends the block of exactly that prefix. An address ends its own block, and that of the client that a
/// rule blocked and that it belongs to; also that such a client is put under a rule on packets. A daemon forgets what
/// it counted of their requests, so that the next block for those is as short as the first. With or without a daemon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--json prints {removed: list of prefixes, not_blocked: list of prefixes}

Exit codes:
  0  they are not blocked any more
  1  some were not blocked, or nothing is loaded
  2  bad usage
  3  this user may neither ask the daemon nor change the pins

Examples:
  ratelimit unblock 192.0.2.7 2001:db8::/48
  ratelimit unblock --origin rules
  ratelimit unblock --all")]
pub(super) struct Args {
    /// Addresses and prefixes
    #[arg(
        value_name = "ADDRESS|PREFIX",
        value_parser = config::prefix,
        required_unless_present_any = ["all", "origin"],
        conflicts_with_all = ["all", "origin"]
    )]
    sources: Vec<IpNet>,
    /// All blocks
    #[arg(long, conflicts_with = "origin")]
    all: bool,
    /// All blocks that these made
    #[arg(long, value_enum, value_name = "WHO")]
    origin: Option<Who>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Default, Serialize)]
struct Report {
    removed: Vec<IpNet>,
    not_blocked: Vec<IpNet>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let Args { sources, all, origin, json, target } = args;
    let by_name = !all && origin.is_none();
    let prefixes = if by_name {
        sources.clone()
    } else {
        let filter = Filter { origin: origin.map(Into::into), ..Filter::default() };
        filter.read(target)?.into_iter().map(|block| block.prefix).collect()
    };
    let mut report = Report::default();
    let mut note = |prefix: IpNet, was_blocked: bool| {
        if was_blocked { report.removed.push(prefix) } else { report.not_blocked.push(prefix) }
    };
    if let Some(daemon) = target.daemon()? {
        for prefix in prefixes {
            note(prefix, daemon.unblock(&prefix.to_string())?);
        }
    } else {
        let state = target.state();
        drop(Blocks::open(&state)?);
        let _lock = state.open()?;
        let mut blocks = Blocks::open(&state)?;
        let mut overrides = Overrides::open(&state)?;
        for prefix in prefixes {
            let was_under = overrides.release(prefix)?;
            note(prefix, blocks.unblock(prefix)? || was_under);
        }
    }
    let Report { removed, not_blocked } = &report;
    let mut out = io::stdout().lock();
    if *json {
        write_json(&mut out, &report)?;
    } else if by_name {
        for prefix in removed {
            writeln!(out, "{} is not blocked any more", blocks::source(prefix))?;
        }
        for prefix in not_blocked {
            writeln!(out, "{} was not blocked", blocks::source(prefix))?;
        }
    } else {
        writeln!(out, "{} blocks ended", number(removed.len()))?;
    }
    // Those of a list that ended by themselves meanwhile are as they should be.
    Ok(if by_name && !not_blocked.is_empty() { Exit::Failure } else { Exit::Success })
}
