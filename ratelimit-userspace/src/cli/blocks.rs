//! `ratelimit blocks`.

use std::{
    io::{self, BufWriter, Write},
    time::SystemTime,
};

use clap::ValueEnum;
use ipnet::IpNet;
use ratelimit::{
    admin::{
        client::BlockFilter,
        read,
        schema::{Block, Blocks, Origin, text},
    },
    config,
};

use super::{
    Exit,
    output::{Style, table, write_json, write_table},
    target::Target,
};

/// Show who is blocked, those first whose block ends first
///
/// Blocks made by commands and by rules; the reason tells those that a client's requests led to. Reads what is
/// pinned, whether a daemon runs or not; a user who may not asks the daemon.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 1 when no policy is in force.",
    after_long_help = "\
--json prints {\"blocks\":[…]}, each
  {prefix, until, since, reason, origin, rule}
    until   time in RFC 3339; null: until somebody ends it
    origin  \"command\" or \"rule\"; then rule is its name

Exit codes:
  0  there is a policy; perhaps nobody is blocked
  1  no policy is in force
  3  this user may neither read the pins nor ask the daemon

Examples:
  ratelimit blocks
  ratelimit blocks --origin rule --limit 20
  ratelimit blocks --covers 192.0.2.7
  ratelimit blocks --json | jq -r '.blocks[].prefix' > blocked.txt"
)]
pub(super) struct Args {
    /// Only blocks within this prefix
    #[arg(long, value_name = "PREFIX", value_parser = config::prefix)]
    prefix: Option<IpNet>,
    /// Only blocks that cover this address or prefix
    #[arg(long, value_name = "ADDRESS", value_parser = config::prefix, conflicts_with = "prefix")]
    covers: Option<IpNet>,
    /// Only blocks that these made
    #[arg(long, value_enum, value_name = "WHO")]
    origin: Option<Who>,
    /// No more than so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Who makes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Who {
    /// Commands, of an operator or a program for one
    #[value(alias = "commands")]
    Command,
    /// Rules with `block:`
    #[value(alias = "rules")]
    Rule,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let Args { prefix, covers, origin, .. } = args;
    let filter = Filter { within: *prefix, covers: *covers, origin: origin.map(Origin::from) };
    let mut blocks = filter.read(&args.target)?;
    let all = blocks.len();
    blocks.sort_by_key(|block| (block.until.is_none(), block.until, block.prefix));
    blocks.truncate(args.limit.unwrap_or(usize::MAX));
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    // There may be a million of them.
    let mut out = BufWriter::new(stdout.lock());
    if args.json {
        write_json(&mut out, &Blocks { blocks })?;
    } else {
        write_text(&mut out, &blocks, all, SystemTime::now(), style)?;
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// Which blocks are meant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filter {
    pub(super) within: Option<IpNet>,
    pub(super) covers: Option<IpNet>,
    pub(super) origin: Option<Origin>,
}

impl Filter {
    /// The blocks that are meant, in no order.
    pub(super) fn read(self, target: &Target) -> anyhow::Result<Vec<Block>> {
        let Self { within, covers, origin } = self;
        target.read(
            |state| anyhow::Ok(read::blocks(state)?.filter(|block| self.means(block)).collect()),
            |daemon| {
                let prefix = within.or(covers).map(|prefix| prefix.to_string());
                let Blocks { mut blocks } = daemon.blocks(&BlockFilter { prefix, origin, limit: None })?;
                blocks.retain(|block| self.means(block));
                Ok(blocks)
            },
        )
    }

    fn means(self, block: &Block) -> bool {
        let Self { within, covers, origin } = self;
        within.is_none_or(|within| within.contains(&block.prefix))
            && covers.is_none_or(|covered| block.prefix.contains(&covered))
            && origin.is_none_or(|origin| block.origin == origin)
    }
}

fn write_text(
    out: &mut impl Write,
    blocks: &[Block],
    all: usize,
    now: SystemTime,
    style: Style,
) -> io::Result<()> {
    if blocks.is_empty() {
        return writeln!(out, "no such block");
    }
    let mut shown = table(&["BLOCKED", "FOR ANOTHER", "SINCE", "BY", "REASON"], 5);
    for Block { prefix, until, since, reason, origin, rule } in blocks {
        shown.add_row([
            source(prefix),
            left(*until, now),
            text::time(*since),
            by(*origin, rule.as_deref()),
            reason.clone(),
        ]);
    }
    write_table(out, &shown, style)?;
    if blocks.len() < all {
        writeln!(out, "… {} of {all}", blocks.len())?;
    }
    Ok(())
}

/// A single address without its length.
pub(super) fn source(prefix: &IpNet) -> String {
    if prefix.prefix_len() == prefix.max_prefix_len() {
        prefix.addr().to_string()
    } else {
        prefix.to_string()
    }
}

/// How long a block lasts from now on.
pub(super) fn left(until: Option<SystemTime>, now: SystemTime) -> String {
    match until {
        Some(until) => {
            let left = until.duration_since(now).unwrap_or_default();
            // The kernel counts in whole seconds.
            text::duration(std::time::Duration::from_secs(left.as_secs()))
        }
        None => "until ended".to_owned(),
    }
}

/// Who made a block.
pub(super) fn by(origin: Origin, rule: Option<&str>) -> String {
    match (origin, rule) {
        (Origin::Command, _) => "command".to_owned(),
        (Origin::Rule, Some(rule)) if !rule.is_empty() => format!("rule {rule}"),
        (Origin::Rule, _) => "a rule".to_owned(),
    }
}

impl From<Who> for Origin {
    fn from(who: Who) -> Self {
        match who {
            Who::Command => Self::Command,
            Who::Rule => Self::Rule,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn net(text: &str) -> IpNet {
        config::prefix(text).expect("a prefix")
    }

    fn block(prefix: &str, left: Option<u64>, rule: Option<&str>) -> Block {
        Block {
            prefix: net(prefix),
            until: left.map(|left| UNIX_EPOCH + Duration::from_secs(1000 + left)),
            since: UNIX_EPOCH,
            reason: "abuse".to_owned(),
            origin: if rule.is_some() { Origin::Rule } else { Origin::Command },
            rule: rule.map(str::to_owned),
        }
    }

    #[test]
    fn filters_mean_what_lies_within_and_what_covers() {
        let blocks = [
            block("192.0.2.7", None, None),
            block("192.0.2.0/24", None, Some("syn")),
            block("2001:db8::/32", None, None),
        ];
        let meant = |filter: Filter| {
            blocks.iter().filter(|it| filter.means(it)).map(|it| it.prefix.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(meant(Filter::default()).len(), 3);
        let within = Filter { within: Some(net("192.0.0.0/16")), ..Filter::default() };
        assert_eq!(meant(within), ["192.0.2.7/32", "192.0.2.0/24"]);
        let covers = Filter { covers: Some(net("192.0.2.8")), ..Filter::default() };
        assert_eq!(meant(covers), ["192.0.2.0/24"]);
        let by_rules = Filter { origin: Some(Origin::Rule), ..Filter::default() };
        assert_eq!(meant(by_rules), ["192.0.2.0/24"]);
    }

    #[test]
    fn a_table_says_for_how_long_and_by_whom() {
        let blocks = [block("192.0.2.7", Some(600), None), block("2001:db8::/32", None, Some("syn"))];
        let mut out = Vec::new();
        let now = UNIX_EPOCH + Duration::from_millis(1_000_500);
        write_text(&mut out, &blocks, 9, now, Style::PLAIN).expect("memory");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "BLOCKED        FOR ANOTHER  SINCE                 BY        REASON\n\
             192.0.2.7      9m 59s       1970-01-01T00:00:00Z  command   abuse\n\
             2001:db8::/32  until ended  1970-01-01T00:00:00Z  rule syn  abuse\n\
             … 2 of 9\n"
        );
    }
}
