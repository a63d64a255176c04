//! `ratelimit rules`.

use std::io::{self, Write};

use ratelimit::{
    admin::{client::Client, read, schema::Rule},
    network::counters::{Counters, LimitCount, RuleCount, Tally},
};
use serde::Serialize;

use super::{
    Exit,
    output::{Style, number, table, write_json, write_table},
    target::Target,
};

/// Show the rules on packets in the order in which they are tried, and what they did
///
/// A packet is held against the limits of the first rule that it meets. Reads what is pinned, whether a daemon
/// runs or not; a user who may not asks the daemon.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 1 when no policy is in force.",
    after_long_help = "\
--json prints {\"rules\":[…]}, each
  {name, applies_to, count_only, passed: tally,
   limits: list of {limit, shed: tally, would_shed: tally}}
a tally is {packets, bytes}

Exit codes:
  0  there is a policy
  1  no policy is in force
  3  this user may neither read the pins nor ask the daemon

Examples:
  ratelimit rules
  ratelimit rules --json | jq -r '.rules[] | select(.limits[].shed.packets > 0) | .name'"
)]
pub(super) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Serialize)]
struct Report {
    rules: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    applies_to: String,
    count_only: bool,
    passed: Tally,
    limits: Vec<LimitCount>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let rules = args.target.read(read::rules, Client::rules)?.rules;
    let counters = args.target.read(read::counters, Client::counters)?;
    let rows = rows(rules, counters);
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let mut out = stdout.lock();
    if args.json {
        write_json(&mut out, &Report { rules: rows })?;
    } else {
        write_text(&mut out, &rows, style)?;
    }
    Ok(Exit::Success)
}

/// The counters of each rule beside it. A reload between the two looks may have brought other rules.
fn rows(rules: Vec<Rule>, counters: Counters) -> Vec<Row> {
    let mut counted = counters.rules;
    let row = |Rule { name, applies_to, limits, count_only }: Rule| {
        let found =
            counted.iter().position(|count| count.rule == name).map(|place| counted.swap_remove(place));
        let RuleCount { passed, limits, .. } = found.unwrap_or_else(|| RuleCount {
            rule: String::new(),
            passed: Tally::default(),
            limits: limits
                .into_iter()
                .map(|limit| LimitCount { limit, shed: Tally::default(), would_shed: Tally::default() })
                .collect(),
        });
        Row { name, applies_to, count_only, passed, limits }
    };
    rules.into_iter().map(row).collect()
}

fn write_text(out: &mut impl Write, rows: &[Row], style: Style) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "the policy has no rules: every packet passes that no list and no block stops");
    }
    let mut rules = table(&["RULE", "APPLIES TO", "LIMITS", "PASSED", "SHED", "WOULD BE SHED"], 3);
    for Row { name, applies_to, count_only, passed, limits } in rows {
        let name = if *count_only { format!("{name} (counts only)") } else { name.clone() };
        let lines =
            |cell: &dyn Fn(&LimitCount) -> String| limits.iter().map(cell).collect::<Vec<_>>().join("\n");
        rules.add_row([
            name,
            applies_to.clone(),
            lines(&|limit| limit.limit.clone()),
            number(passed.packets),
            lines(&|limit| number(limit.shed.packets)),
            lines(&|limit| number(limit.would_shed.packets)),
        ]);
    }
    write_table(out, &rules, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(packets: u64) -> Tally {
        Tally { packets, bytes: 64 * packets }
    }

    fn rule(name: &str, count_only: bool) -> Rule {
        Rule {
            name: name.to_owned(),
            applies_to: "protocol udp".to_owned(),
            limits: vec!["per source: 5/s, burst 5".to_owned(), "per rule: 9/s, burst 9".to_owned()],
            count_only,
        }
    }

    #[test]
    fn each_limit_has_a_line_with_what_it_shed() {
        let limit = |shed, would_shed| LimitCount {
            limit: "per source: 5/s, burst 5".to_owned(),
            shed: tally(shed),
            would_shed: tally(would_shed),
        };
        let counted =
            RuleCount { rule: "udp".to_owned(), passed: tally(1500), limits: vec![limit(3, 0), limit(0, 7)] };
        let counters = Counters { rules: vec![counted], ..Counters::default() };
        let rows = rows(vec![rule("new", true), rule("udp", false)], counters);
        let mut out = Vec::new();
        write_text(&mut out, &rows, Style::PLAIN).expect("memory");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect())
            .collect();
        assert_eq!(lines[0], ["RULE", "APPLIES TO", "LIMITS", "PASSED", "SHED", "WOULD BE SHED"]);
        assert_eq!(
            lines[1],
            ["new (counts only)", "protocol udp", "per source: 5/s, burst 5", "0", "0", "0"]
        );
        assert_eq!(lines[3], ["udp", "protocol udp", "per source: 5/s, burst 5", "1,500", "3", "0"]);
        assert_eq!(lines[4], ["per source: 5/s, burst 5", "0", "7"]);
    }
}
