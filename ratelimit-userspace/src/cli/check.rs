//! `ratelimit check`: says what is wrong with a rules file, without touching anything.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use ratelimit::config::{self, Failure, Loaded, diagnostic::Diagnostic, http::Domain, policy::Config};
use serde::Serialize;

use super::Exit;

/// Check a rules file: every mistake with its line and column, in one run
///
/// Reads the file and the files it names, and nothing else: neither privilege nor the interfaces are
/// needed. Findings go to standard error, one line of summary to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The rules file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print `{"valid":…,"errors":[…],"warnings":[…]}` on standard output and nothing else
    ///
    /// Each entry is `{"file","line","column","code","message","expected","nearest"}`; what is not known is
    /// null.
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Exit codes:
  0  the file is valid; there may be warnings
  1  the file is invalid
  2  bad usage, or the file cannot be read

Examples:
  ratelimit check /etc/ratelimit/rules.yaml
  ratelimit check http.yaml && ratelimit daemon --config http.yaml
  ratelimit check --json rules.yaml | jq '.errors[] | [.line, .column, .message]'";

/// The outcome for programs.
#[derive(Serialize)]
struct Report<'a> {
    valid: bool,
    errors: &'a [Diagnostic],
    warnings: &'a [Diagnostic],
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let outcome = config::load(&args.file);
    // Whoever asks by the exit code may not read the output, or not to its end.
    let printed = if args.json { print_json(&outcome) } else { print_text(args, &outcome) };
    printed.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })?;
    Ok(match outcome {
        Ok(_) => Exit::Success,
        Err(Failure::Invalid { .. }) => Exit::Failure,
        Err(Failure::Unreadable(_)) => Exit::Usage,
    })
}

fn print_json(outcome: &Result<Loaded, Failure>) -> io::Result<()> {
    let report = match outcome {
        Ok(Loaded { warnings, .. }) => Report { valid: true, errors: &[], warnings },
        Err(Failure::Invalid { errors, warnings }) => Report { valid: false, errors, warnings },
        Err(Failure::Unreadable(error)) => {
            Report { valid: false, errors: std::slice::from_ref(&**error), warnings: &[] }
        }
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &report)?;
    writeln!(out)
}

fn print_text(args: &Args, outcome: &Result<Loaded, Failure>) -> io::Result<()> {
    let (findings, summary) = match outcome {
        Ok(Loaded { config, warnings }) => {
            (warnings.iter().collect(), format!("valid: {}", summary(config, warnings.len())))
        }
        Err(Failure::Invalid { errors, warnings }) => (
            errors.iter().chain(warnings).collect(),
            format!("invalid: {}, {}", count(errors.len(), "error"), count(warnings.len(), "warning")),
        ),
        Err(Failure::Unreadable(error)) => (vec![&**error], "unreadable".to_owned()),
    };
    let mut err = io::stderr().lock();
    for finding in findings {
        writeln!(err, "{finding}")?;
    }
    writeln!(io::stdout().lock(), "{}: {summary}", args.file.display())
}

/// What a valid file holds, each section that it has with its counts.
fn summary(config: &Config, warnings: usize) -> String {
    let Config { interfaces, network, http, admin: _ } = config;
    let mut parts = Vec::new();
    if network.is_some() || http.is_none() {
        let rules = network.as_ref().map_or(0, |network| network.rules.len());
        parts.push(count(rules, "rule"));
    }
    if http.is_none() || network.is_some() || !interfaces.is_empty() {
        parts.push(count(interfaces.len(), "interface"));
    }
    let deny = network.as_ref().map_or(0, |network| network.deny.len());
    if deny > 0 {
        parts.push(format!("{deny} denied {}", if deny == 1 { "prefix" } else { "prefixes" }));
    }
    if let Some(http) = http {
        parts.push(count(http.domains.iter().map(Domain::rule_count).sum(), "http rule"));
        parts.push(count(http.domains.len(), "domain"));
    }
    parts.push(count(warnings, "warning"));
    parts.join(", ")
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
