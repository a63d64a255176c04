//! `ratelimit reset`.

use std::io::{self, Write as _};

use bytes::Bytes;
use http::Method;
use serde::Deserialize;

use super::{
    Exit,
    question::{self, Entries, Source},
};

/// Forget what was counted for one descriptor
///
/// Asks the running daemon, which must have an `http:` section with `listen:`. From another host than the
/// daemon's it takes the token with the right to write.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  the counter is whole again, or was
  1  no rule limits that descriptor, or the daemon cannot be asked
  2  bad usage, or a file that cannot be read

Examples:
  ratelimit reset --config rules.yaml --domain api --descriptor client_ip=192.0.2.1
  ratelimit reset --config rules.yaml --domain api --descriptor 'client_ip=192.0.2.1,route=/login' --json")]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// The domain
    #[arg(long, value_name = "NAME")]
    domain: String,
    /// The descriptor: key=value, more entries behind commas; `\,` is a comma within a value
    #[arg(long, value_name = "ENTRIES")]
    descriptor: Entries,
    /// Print `{"reset":bool}`: whether anything was counted; null when no rule limits the descriptor
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Reset {
    reset: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let http = args.source.http()?;
    let Entries(entries) = &args.descriptor;
    let target = question::counter(&args.domain, entries);
    let answer = args.source.ask(&http, Method::DELETE, &target, Bytes::new())?;
    let reset = answer.map(|answer| serde_json::from_slice::<Reset>(&answer)).transpose()?.map(|it| it.reset);
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &serde_json::json!({ "reset": reset }))?;
        writeln!(out)?;
    } else {
        let words = match reset {
            Some(true) => "the counter is whole again",
            Some(false) => "nothing was counted",
            None => "no rule limits this descriptor, so there is no counter",
        };
        writeln!(out, "{words}")?;
    }
    Ok(if reset.is_some() { Exit::Success } else { Exit::Failure })
}
