//! `ratelimit counters`.

use std::io::{self, Write as _};

use comfy_table::Table;
use ratelimit::{
    admin::{client::Client, read},
    network::counters::{Counters, LimitCount, Tally},
};

use super::{
    Exit,
    output::{Style, number, table, write_json, write_table},
    target::Target,
};

/// Show what was passed and shed, by rule and by reason, whether a daemon runs or not
///
/// Counts run from the moment the state was pinned; a restart of the daemon and a changed rules file keep
/// them. Bytes are those of whole frames. Every packet is counted once by its reason, and once more by its
/// rule if it met one.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 1 when nothing is pinned.",
    after_long_help = "\
Exits with 1 when nothing is pinned.

--json prints one object; a tally is {packets: number, bytes: number}:
  rules    list, in file order, of {rule, passed: tally,
             limits: list of {limit: string, shed: tally, would_shed: tally}}
  reasons  list of {reason, passed: tally, shed: tally, would_shed: tally}, all reasons
  events   list of {event, count: number}, all events
would_shed: passed only because `mode: monitor` or `action: count` says so

Examples:
  ratelimit counters
  ratelimit counters --json | jq '.reasons[] | select(.shed.packets > 0)'"
)]
pub(super) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Show rows of zeroes too
    #[arg(long, conflicts_with = "json")]
    all: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let counters = args.target.read(read::counters, Client::counters)?;
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let mut out = stdout.lock();
    if args.json {
        write_json(&mut out, &counters)?;
        return Ok(Exit::Success);
    }
    let shown = tables(&counters, args.all).into_iter().filter(|table| !table.is_empty());
    for (index, table) in shown.enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_table(&mut out, &table, style)?;
    }
    Ok(Exit::Success)
}

/// Three tables: rules with their limits, reasons, events.
fn tables(counters: &Counters, all: bool) -> [Table; 3] {
    let Counters { rules: by_rule, reasons: by_reason, events: by_event } = counters;
    let mut rules = table(&["RULE", "LIMIT", "PACKETS", "BYTES"], 2);
    for rule in by_rule {
        row(&mut rules, [&rule.rule, "within limits"], rule.passed);
        for LimitCount { limit, shed, would_shed } in &rule.limits {
            if all || shed.packets > 0 || would_shed.packets == 0 {
                row(&mut rules, ["", &format!("shed by {limit}")], *shed);
            }
            if all || would_shed.packets > 0 {
                row(&mut rules, ["", &format!("would be shed by {limit}")], *would_shed);
            }
        }
    }
    let mut reasons = table(&["REASON", "VERDICT", "PACKETS", "BYTES"], 2);
    for reason in by_reason {
        let verdicts =
            [("passed", reason.passed), ("shed", reason.shed), ("would be shed", reason.would_shed)];
        for (verdict, tally) in verdicts {
            if all || tally.packets > 0 {
                row(&mut reasons, [&reason.reason, verdict], tally);
            }
        }
    }
    let mut events = table(&["EVENT", "COUNT"], 1);
    for event in by_event {
        if all || event.count > 0 {
            events.add_row([event.event.clone(), number(event.count)]);
        }
    }
    [rules, reasons, events]
}

fn row(table: &mut Table, [first, second]: [&str; 2], tally: Tally) {
    table.add_row([first, second, &number(tally.packets), &number(tally.bytes)]);
}

#[cfg(test)]
mod tests {
    use ratelimit::network::counters::{EventCount, ReasonCount, RuleCount};

    use super::*;

    #[test]
    fn rules_are_always_shown_and_empty_reasons_are_not() {
        let counters = Counters {
            rules: vec![RuleCount {
                rule: "dns".to_owned(),
                passed: Tally { packets: 1234, bytes: 80_000 },
                limits: vec![LimitCount {
                    limit: "per source: 5/s".to_owned(),
                    shed: Tally::default(),
                    would_shed: Tally::default(),
                }],
            }],
            reasons: vec![ReasonCount {
                reason: "limited".to_owned(),
                passed: Tally::default(),
                shed: Tally::default(),
                would_shed: Tally::default(),
            }],
            events: vec![EventCount { event: "live_evicted".to_owned(), count: 0 }],
        };
        let [rules, reasons, events] = tables(&counters, false);
        let rules = rules.to_string();
        assert!(rules.contains("1,234") && rules.contains("shed by per source: 5/s"), "{rules}");
        assert!(!rules.contains("would be shed"), "{rules}");
        assert_eq!((reasons.row_count(), events.row_count()), (0, 0));
        let [rules, reasons, events] = tables(&counters, true);
        assert!(rules.to_string().contains("would be shed by per source: 5/s"));
        assert_eq!((reasons.row_count(), events.row_count()), (3, 1));
    }
}
