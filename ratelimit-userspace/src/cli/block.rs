//! `ratelimit block`.

mod pinned;

use std::{
    fs::File,
    io::{self, Cursor, Read, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use ipnet::IpNet;
use ratelimit::{
    admin::schema::{BlockError, BlockRequest, BulkBlocked, text},
    config,
};

use super::{
    Exit, Unreadable, blocks,
    output::{Style, Tone, number, write_json},
    target::Target,
};

/// Block sources: shed all that they send, for a time or until somebody ends it
///
/// A block holds in the kernel from this moment on and ends there by itself. It survives the daemon, and with a
/// daemon also a reboot. Who is blocked already gets the new end and reason. What `allow` and `management` name
/// passes all the same. Without a daemon the pins are changed, as far as their table has room.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A list has one address or prefix a line; blank lines and what stands after # do not count. A line may also be
{\"prefix\":P,\"for\":\"10m\",\"reason\":R}. A line that is wrong is told and keeps no other one from being blocked;
if there is no room for all of them, none is.

--json prints {added, replaced, failed, errors: list of {line, entry, message}}

Exit codes:
  0  all are blocked
  1  some are not, or that would cut your own connection, or nothing is loaded
  2  bad usage, or a list that cannot be read
  3  this user may neither ask the daemon nor change the pins

Examples:
  ratelimit block 192.0.2.7
  ratelimit block 192.0.2.0/24 2001:db8::/48 --for 10m --reason 'port scan'
  ratelimit block --file blocked.txt --for 1d
  curl -s https://example.net/list.txt | ratelimit block --file -")]
pub(super) struct Args {
    /// Addresses and prefixes
    #[arg(value_name = "ADDRESS|PREFIX", value_parser = config::prefix, required_unless_present = "file")]
    sources: Vec<IpNet>,
    /// A list of them, `-` for standard input
    #[arg(long, value_name = "LIST", conflicts_with = "sources")]
    file: Option<PathBuf>,
    /// For how long, such as 10m or 1d 12h; absent: until somebody ends it
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// Why, for whoever looks later; at most 120 bytes
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Also where that cuts your own connection
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let list = args.list()?;
    let request = BlockRequest { duration: args.duration, reason: args.reason.clone(), force: args.force };
    let daemon = args.target.daemon()?;
    let blocked = match &daemon {
        Some(daemon) => daemon.block_list(list, &request)?,
        None => pinned::block(&args.target.state(), list, &request)?,
    };
    args.report(&blocked, daemon.is_none())?;
    Ok(if blocked.failed == 0 { Exit::Success } else { Exit::Failure })
}

// === impl Args ===

impl Args {
    /// The sources, one a line.
    fn list(&self) -> anyhow::Result<Box<dyn Read + Send>> {
        Ok(match &self.file {
            None => {
                let lines: Vec<String> = self.sources.iter().map(ToString::to_string).collect();
                Box::new(Cursor::new(lines.join("\n")))
            }
            Some(path) if path.as_os_str() == "-" => Box::new(io::stdin()),
            Some(path) => Box::new(File::open(path).map_err(|error| Unreadable::new(path, error))?),
        })
    }

    fn report(&self, blocked: &BulkBlocked, unattended: bool) -> anyhow::Result<()> {
        if self.json {
            return write_json(&mut io::stdout().lock(), blocked).context("failed to print");
        }
        let BulkBlocked { added, replaced, failed, errors } = blocked;
        let stderr = io::stderr();
        let style = Style::of(&stderr);
        let mut err = stderr.lock();
        for error in errors {
            writeln!(err, "{}", style.paint(Tone::Bad, &self.complaint(error)))?;
        }
        let untold = failed.saturating_sub(errors.len());
        if untold > 0 {
            writeln!(err, "… and {} more", number(untold))?;
        }
        let mut out = io::stdout().lock();
        let time = self.duration.map_or_else(
            || "until somebody ends it".to_owned(),
            |duration| format!("for {}", text::duration(duration)),
        );
        if let ([source], 0) = (&self.sources[..], failed) {
            writeln!(out, "{} is blocked {time}", blocks::source(source))?;
        } else {
            let anew = if *replaced > 0 { format!(", {} anew", number(replaced)) } else { String::new() };
            let failed = if *failed > 0 { format!(", {} failed", number(failed)) } else { String::new() };
            writeln!(out, "blocked: {} new{anew}{failed}", number(added))?;
        }
        if unattended && added + replaced > 0 {
            writeln!(err, "no daemon runs, so these blocks end with a reboot")?;
        }
        Ok(())
    }

    fn complaint(&self, BlockError { line, entry, message }: &BlockError) -> String {
        match &self.file {
            Some(file) => format!("{}:{line}: {entry}: {message}", file.display()),
            None => format!("{entry}: {message}"),
        }
    }
}
