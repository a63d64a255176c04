//! `ratelimit show`.

use std::{
    io::{self, Write},
    net::IpAddr,
    time::SystemTime,
};

use anyhow::Context as _;
use ratelimit::{
    admin::{
        read,
        schema::{Address, Block, Source, text},
    },
    network::{
        blocks::Blocks,
        buckets::Buckets,
        explain::LimitState,
        in_force::{self, Policy},
        overrides::{Overrides, Under},
        show::{self, Fate, RuleMet, Shown},
    },
};
use serde::Serialize;

use super::{
    Exit, blocks,
    output::{Style, Tone, estimate, number, table, write_json, write_table},
    target::Target,
};

/// Show what becomes of an address: lists, blocks, the rules that its packets meet, and what is left to it now
///
/// What is left is read from the buckets in the kernel, without taking from them; the wait is that of a small
/// packet. Needs no daemon, but root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--json prints one object
  address, allowed, denied
  management   list of destination ports at which it is never shed
  fate         \"passes\", \"denied\", \"blocked\": that is decided of all its packets; \"rules\": by the rules
  under        null, or {client, rule, until}: the rule that it is put under for its requests
  blocks       list as in `ratelimit blocks --json`, those that cover it
  rules        list of {rule, packets: list of words, count_only, admits, wait,
                 limits: list of {limit, unit, left, of, cost, admits, wait, full_in}}
  without_rule list of words: packets that meet no rule
  seen         null, or as in `ratelimit sources --json`
wait is null when it may send now or never, full_in when the bucket is full; both are text such as \"1s 250ms\"

Exit codes:
  0  shown
  1  no policy is in force
  2  that is no address
  3  this user may not read the pins

Examples:
  ratelimit show 192.0.2.7
  ratelimit show 2001:db8::7 --json | jq '.rules[] | {rule, wait}'")]
pub(super) struct Args {
    /// The address
    #[arg(value_name = "ADDRESS")]
    address: IpAddr,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    shown: Shown,
    blocks: Vec<Block>,
    seen: Option<Source>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let state = args.target.state();
    let policy = Policy::pinned(&state)?;
    let policy = policy
        .with_context(|| format!("no policy is in force: nothing is pinned in {}", state.root().display()))?;
    let address = in_force::address(args.address);
    let found = Blocks::open(&state)?.find(args.address)?;
    let buckets = Buckets::pinned(&state)?;
    let under = Overrides::open(&state)?.find(args.address)?;
    let shown = show::show(&policy, &address, &policy.listed(&address)?, &found, under, buckets.as_ref());
    let Address { blocks, seen, .. } = read::address(&state, args.address)?;
    let report = Report { shown, blocks, seen };
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let mut out = stdout.lock();
    if args.json {
        write_json(&mut out, &report)?;
    } else {
        write_text(&mut out, &report, SystemTime::now(), style)?;
    }
    Ok(Exit::Success)
}

fn write_text(out: &mut impl Write, report: &Report, now: SystemTime, style: Style) -> io::Result<()> {
    let Report { shown, blocks, seen } = report;
    let Shown { address, allowed, denied, management, fate, under, rules, without_rule } = shown;
    let (tone, words) = match fate {
        Fate::Passes => (Tone::Good, "everything passes: it is on the allow list"),
        Fate::Denied => (Tone::Bad, "everything is shed: it is on the deny list"),
        Fate::Blocked => (Tone::Bad, "everything is shed: it is blocked"),
        Fate::Rules => (Tone::Good, "the rules decide"),
    };
    writeln!(out, "{}  {}", style.paint(Tone::Heading, &address.to_string()), style.paint(tone, words))?;
    let lists = [(*allowed, "allow"), (*denied, "deny")];
    let lists: Vec<_> = lists.into_iter().filter_map(|(on, name)| on.then_some(name)).collect();
    writeln!(out, "lists       {}", if lists.is_empty() { "none".to_owned() } else { lists.join(", ") })?;
    if !management.is_empty() {
        writeln!(out, "management  never shed at port {}", management.join(", "))?;
    }
    for Block { prefix, until, reason, origin, rule, .. } in blocks {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let (left, by) = (blocks::left(*until, now), blocks::by(*origin, rule.as_deref()));
        writeln!(out, "blocked     {}, for another {left}, by {by}{reason}", blocks::source(prefix))?;
    }
    if let Some(Under { client, rule, until, .. }) = under {
        let left = blocks::left(Some(*until), now);
        writeln!(out, "put under   {rule}, for another {left}: {}", blocks::source(client))?;
    }
    match seen {
        Some(Source { source, passed, shed, last_seen, .. }) => writeln!(
            out,
            "seen        {}: {} packets passed, {} shed; last at {}",
            blocks::source(source),
            estimate(passed),
            estimate(shed),
            text::time(*last_seen)
        )?,
        None => writeln!(out, "seen        not lately")?,
    }
    if !rules.is_empty() {
        writeln!(out)?;
        let mut met = table(&["RULE", "MET BY", "LIMITS", "LEFT", "AGAIN"], 5);
        for RuleMet { rule, packets, count_only, limits, .. } in rules {
            let name = if *count_only { format!("{rule} (counts only)") } else { rule.clone() };
            let lines =
                |cell: &dyn Fn(&LimitState) -> String| limits.iter().map(cell).collect::<Vec<_>>().join("\n");
            let left =
                |limit: &LimitState| format!("{} of {} {}", number(limit.left), number(limit.of), limit.unit);
            met.add_row([
                name,
                packets.join("\n"),
                lines(&|limit| limit.limit.clone()),
                lines(&left),
                lines(&again),
            ]);
        }
        write_table(out, &met, style)?;
    }
    if !without_rule.is_empty() {
        writeln!(out, "\nno rule     {}", without_rule.join(", "))?;
    }
    Ok(())
}

/// When a limit lets a packet pass.
pub(super) fn again(limit: &LimitState) -> String {
    match (&limit.wait, limit.admits) {
        (_, true) => "now".to_owned(),
        (Some(wait), false) => format!("in {wait}"),
        (None, false) => "never".to_owned(),
    }
}
