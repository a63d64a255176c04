//! `ratelimit sources`.

use std::{
    io::{self, IsTerminal as _, Write},
    thread,
    time::{Duration, SystemTime},
};

use clap::ValueEnum;
use ratelimit::admin::{
    read::{self, By},
    schema::{Source, Sources, text},
};

use super::{
    Exit, blocks,
    output::{Style, estimate, number, table, write_json, write_table},
    target::Target,
};

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// Show the sources that sent the most, by what was shed of them or by what passed
///
/// Counted by sampling: exact while a source has sent little, else with the error beside it, which holds in 19
/// of 20 cases. Reads what is pinned, whether a daemon runs or not; a user who may not asks the daemon.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 1 when no policy is in force.",
    after_long_help = "\
--json prints {\"sources\":[…]}, each
  {source, passed: traffic, shed: traffic, first_seen, last_seen}
traffic is {packets, bytes, packets_error}; times are in RFC 3339

Exit codes:
  0  there is a policy; perhaps nobody was seen yet
  1  no policy is in force
  3  this user may neither read the pins nor ask the daemon

Examples:
  ratelimit sources
  ratelimit sources --by passed --top 5
  ratelimit sources --watch
  ratelimit sources --json | jq -r '.sources[] | select(.shed.packets > 1000) | .source'"
)]
pub(super) struct Args {
    /// No more than so many
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// What counts
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Order::Shed)]
    by: Order,
    /// Look again every two seconds, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// Packets that were shed
    Shed,
    /// Packets that passed
    Passed,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let (by, name) = match args.by {
        Order::Shed => (By::Shed, "shed"),
        Order::Passed => (By::Passed, "passed"),
    };
    loop {
        let sources = args.target.read(
            |state| anyhow::Ok(read::sources(state, args.top, by)?),
            |daemon| daemon.sources(args.top, name),
        )?;
        let mut out = stdout.lock();
        if args.json {
            write_json(&mut out, &sources)?;
        } else {
            if args.watch && stdout.is_terminal() {
                // Home, and clear from there on.
                write!(out, "\x1b[H\x1b[J")?;
            }
            write_text(&mut out, &sources, SystemTime::now(), style)?;
        }
        out.flush()?;
        drop(out);
        if !args.watch {
            return Ok(Exit::Success);
        }
        thread::sleep(PAUSE);
    }
}

fn write_text(
    out: &mut impl Write,
    Sources { sources }: &Sources,
    now: SystemTime,
    style: Style,
) -> io::Result<()> {
    if sources.is_empty() {
        return writeln!(out, "no source was seen yet");
    }
    let mut shown = table(&["SOURCE", "SHED", "BYTES", "PASSED", "BYTES", "LAST SEEN"], 1);
    for Source { source, passed, shed, last_seen, .. } in sources {
        let ago = Duration::from_secs(now.duration_since(*last_seen).unwrap_or_default().as_secs());
        shown.add_row([
            blocks::source(source),
            estimate(shed),
            number(shed.bytes),
            estimate(passed),
            number(passed.bytes),
            format!("{} ago", text::duration(ago)),
        ]);
    }
    write_table(out, &shown, style)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use ratelimit::admin::schema::Traffic;

    use super::*;

    #[test]
    fn estimates_show_their_error() {
        let traffic = |packets, packets_error| Traffic { packets, bytes: 100 * packets, packets_error };
        let source = Source {
            source: ratelimit::config::prefix("2001:db8::/64").expect("a prefix"),
            passed: traffic(12, 0),
            shed: traffic(120_000, 1500),
            first_seen: UNIX_EPOCH,
            last_seen: UNIX_EPOCH + Duration::from_secs(10),
        };
        let mut out = Vec::new();
        let now = UNIX_EPOCH + Duration::from_millis(13_900);
        write_text(&mut out, &Sources { sources: vec![source] }, now, Style::PLAIN).expect("memory");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "SOURCE                   SHED       BYTES  PASSED  BYTES  LAST SEEN\n\
             2001:db8::/64  120,000 ±1,500  12,000,000      12  1,200     3s ago\n"
        );
    }
}
