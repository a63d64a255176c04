//! `ratelimit reload`.

use std::io::{self, Write};

use ratelimit::admin::schema::Reloaded;

use super::{
    Exit,
    output::{Style, Tone, number, write_json},
    target::Target,
};

/// Make the daemon read the rules file again, and all files that it names
///
/// What is wrong changes nothing. What is right takes effect at once and without a gap: buckets, blocks and
/// counters of rules that stay are kept. The daemon also does this by itself when a file changes, and on SIGHUP.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--json prints {changed, rules, warnings, milliseconds}

Exit codes:
  0  what the files say is in force
  1  they are wrong, or would cut your own connection; or no daemon runs
  3  this user may not ask the daemon

Examples:
  ratelimit check /etc/ratelimit/rules.yaml && ratelimit reload
  ratelimit reload --json | jq .changed")]
pub(super) struct Args {
    /// Also where the policy would cut your own connection
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let reloaded = args.target.required()?.reload(args.force)?;
    if args.json {
        write_json(&mut io::stdout().lock(), &reloaded)?;
        return Ok(Exit::Success);
    }
    let Reloaded { changed, rules, warnings, milliseconds } = &reloaded;
    write_warnings(warnings)?;
    let words = if *changed {
        format!("reloaded in {milliseconds} ms: {} rules are in force", number(rules))
    } else {
        format!("nothing has changed: {} rules are in force", number(rules))
    };
    writeln!(io::stdout().lock(), "{words}")?;
    Ok(Exit::Success)
}

/// What is allowed but probably not meant.
pub(super) fn write_warnings(warnings: &[String]) -> io::Result<()> {
    let stderr = io::stderr();
    let style = Style::of(&stderr);
    let mut err = stderr.lock();
    warnings.iter().try_for_each(|warning| writeln!(err, "{}", style.paint(Tone::Warning, warning)))
}
