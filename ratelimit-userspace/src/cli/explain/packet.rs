//! `ratelimit explain` of a packet.

use std::{
    io::{self, Write},
    net::IpAddr,
    path::Path,
};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use ratelimit::{
    config,
    network::{
        blocks::Blocks,
        buckets::Buckets,
        description::Description,
        explain::{self, Action, Explanation, LimitState, RuleStep, Stage, Surroundings, Unclear, Verdict},
        in_force::{self, Policy},
        overrides::Overrides,
    },
};
use ratelimit_common::packet::Fragment;
use serde::Serialize;

use crate::cli::{
    BadUsage, Exit,
    output::{Style, Tone, number, table, write_json, write_table},
    show::again,
    target::Target,
};

/// What is asked about.
#[derive(Debug, clap::Args)]
#[group(id = "about_packet")]
#[command(next_help_heading = "A packet")]
pub(super) struct Asked {
    /// Where it comes from
    #[arg(
        long,
        value_name = "ADDRESS",
        conflicts_with_all = ["request", "domain", "descriptor"],
        required_unless_present_any = ["request", "descriptor"]
    )]
    source: Option<IpAddr>,
    /// Where it goes to; absent: an address that no rule names
    #[arg(long, value_name = "ADDRESS", requires = "source")]
    destination: Option<IpAddr>,
    /// Its protocol: a name such as tcp, or a number
    #[arg(long, value_name = "NAME", value_parser = config::protocol, requires = "source")]
    protocol: Option<u8>,
    /// Its source port [default: 40000]
    #[arg(long, value_name = "PORT", requires = "source")]
    source_port: Option<u16>,
    /// Its destination port [default: 0]
    #[arg(long, value_name = "PORT", requires = "source")]
    destination_port: Option<u16>,
    /// It opens a TCP connection: --flags syn
    #[arg(long, requires = "source", conflicts_with = "flags")]
    syn: bool,
    /// Its TCP flags, as in syn,ack [default: ack]
    #[arg(long, value_name = "FLAGS", value_parser = config::tcp_flags, requires = "source")]
    flags: Option<u8>,
    /// Its ICMP or ICMPv6 type: a name such as echo-request, or a number
    #[arg(long, value_name = "TYPE", requires = "source")]
    icmp_type: Option<String>,
    /// Which part of a datagram it is [default: none]
    #[arg(long, value_enum, value_name = "PART", requires = "source")]
    fragment: Option<Part>,
    /// Its VLAN; absent: it has no tag
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(0..=4094), requires = "source")]
    vlan: Option<u16>,
    /// Bytes of the whole frame [default: 64]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(14..), requires = "source")]
    length: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A whole datagram
    None,
    /// The first fragment
    First,
    /// A later fragment
    Later,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    explanation: &'a Explanation,
    buckets: &'static str,
}

pub(super) fn run(
    asked: &Asked,
    source: IpAddr,
    config: Option<&Path>,
    target: &Target,
    json: bool,
) -> anyhow::Result<Exit> {
    let question = asked.packet(source).and_then(|packet| packet.clear(source)).map_err(BadUsage)?;
    let state = target.state();
    let policy = match config {
        Some(path) => {
            let network = config::load(path)?.config.network;
            let network = network.with_context(|| {
                format!("{} has no network: section, so nothing limits packets", path.display())
            })?;
            // Without privilege the file alone is explained.
            let in_force = Description::read(&state.state()).ok().flatten();
            Policy::of_file(network, in_force.as_ref())?
        }
        None => Policy::pinned(&state)?.ok_or_else(|| {
            anyhow!(
                "no policy is in force: nothing is pinned in {}; give a rules file: --config FILE",
                state.root().display()
            )
        })?,
    };
    let address = in_force::address(source);
    let (blocks, buckets) = if config.is_none() {
        (Blocks::open(&state)?.find(source)?, Buckets::pinned(&state)?)
    } else {
        let blocks = Blocks::open(&state).ok().and_then(|blocks| blocks.find(source).ok());
        (blocks.unwrap_or_default(), Buckets::pinned(&state).ok().flatten())
    };
    let under = if config.is_none() { Overrides::open(&state)?.find(source)? } else { None };
    let surroundings = Surroundings { listed: policy.listed(&address)?, blocks, under };
    let explanation = explain::explain(&policy, &question, &surroundings, buckets.as_ref());
    let live = buckets.is_some();
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let mut out = stdout.lock();
    if json {
        let buckets = if live { "live" } else { "full" };
        write_json(&mut out, &Report { explanation: &explanation, buckets })?;
    } else {
        write_text(&mut out, &explanation, live, style)?;
    }
    Ok(Exit::Success)
}

fn write_text(out: &mut impl Write, explanation: &Explanation, live: bool, style: Style) -> io::Result<()> {
    let Explanation { packet, assumed, stages, rules, limits, verdict } = explanation;
    writeln!(out, "{}", style.paint(Tone::Heading, packet))?;
    if !assumed.is_empty() {
        writeln!(out, "assumed: {}", assumed.join("; "))?;
    }
    writeln!(out)?;
    let stages = stages.iter().map(|Stage { stage, decides, why }| ((*stage).to_owned(), *decides, why));
    let rules = rules.iter().map(|RuleStep { rule, matches, why }| (format!("rule {rule}"), *matches, why));
    let steps: Vec<_> = stages.chain(rules).collect();
    let width = steps.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    for (name, holds, why) in steps {
        let (tone, word) = if holds { (Tone::Good, "yes") } else { (Tone::Heading, "no ") };
        writeln!(out, "{name:width$}  {}  {why}", style.paint(tone, word))?;
    }
    if !limits.is_empty() {
        writeln!(out)?;
        let mut shown = table(&["LIMIT", "LEFT", "TAKES", "PASSES"], 4);
        for limit in limits {
            let LimitState { limit: words, unit, left, of, cost, .. } = limit;
            let left = format!("{} of {} {unit}", number(left), number(of));
            shown.add_row([words.clone(), left, number(cost), again(limit)]);
        }
        write_table(out, &shown, style)?;
        if !live {
            writeln!(out, "no buckets are pinned (or may be read), so this is as if nobody had sent yet")?;
        }
    }
    writeln!(out, "\n{}", decision(verdict, style))
}

fn decision(Verdict { verdict, reason, rule, limit }: &Verdict, style: Style) -> String {
    let word = match verdict {
        Action::Pass => style.paint(Tone::Good, "passes"),
        Action::Shed => style.paint(Tone::Bad, "is shed"),
        Action::WouldShed => {
            style.paint(Tone::Warning, "passes, but would be shed if it were not only counted")
        }
    };
    let rule = rule.as_ref().map(|rule| format!(", rule {rule}")).unwrap_or_default();
    let limit = limit.map(|limit| format!(", limit {limit}")).unwrap_or_default();
    format!("{word}: {reason}{rule}{limit}")
}

// === impl Asked ===

impl Asked {
    /// Where the packet comes from, if it is about one.
    pub(super) fn source(&self) -> Option<IpAddr> {
        self.source
    }

    fn packet(&self, source: IpAddr) -> Result<Unclear, String> {
        let Self { source: _, destination, protocol, source_port, destination_port, .. } = *self;
        let family = in_force::address(source).family;
        Ok(Unclear {
            protocol,
            destination,
            source_port,
            destination_port,
            flags: if self.syn { Some(config::tcp_flags("syn")?) } else { self.flags },
            icmp_type: self.icmp_type.as_deref().map(|text| config::icmp_type(text, family)).transpose()?,
            fragment: self.fragment.map(|part| match part {
                Part::None => Fragment::None,
                Part::First => Fragment::First,
                Part::Later => Fragment::Later,
            }),
            vlan: self.vlan,
            length: self.length,
        })
    }
}
