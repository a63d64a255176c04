//! `ratelimit events`.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
};

use ratelimit::admin::schema::{Event, Mode, Shed, What, text};

use super::{
    Exit, blocks,
    output::{Style, Tone, number},
    target::Target,
};

/// Show what happened lately: samples of shed packets, reloads, blocks, interfaces that came and went
///
/// Packets are sampled, and no more than about fifty a second and reason, so that a flood does not flood the
/// reader as well; `×N` says for how many a sample stands. What came too fast is counted and told as lost.
/// `ratelimit counters` has exact numbers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--json prints one object a line: {id, time, type, …} with what the type has
  shed             {reason, rule, limit, source, destination, protocol, source_port, destination_port,
                    length, weight, interface}
  samples_lost     {count}
  reloaded         {cause, changed, rules, warnings, milliseconds}
  reload_failed    {cause, message}
  applied          {trial, deadline}; confirmed {trial}; rolled_back {trial, cause}
  mode_changed     {mode}
  blocked          {prefix, until, reason, origin}; blocked_many {added, replaced, failed}; unblocked {prefix}
  escalated        {prefix, client, rule, denials, within, offence, until, under}
  interface_attached {interface, mode}; interface_gone {interface}; interface_failed {interface, message}
  stopping; lost {count}: events that this reader has not got

Exit codes:
  0  told; with --follow: the daemon has ended
  1  no daemon runs
  3  this user may not ask the daemon

Examples:
  ratelimit events
  ratelimit events --follow
  ratelimit events --follow --json | jq -r 'select(.type == \"shed\") | .source'")]
pub(super) struct Args {
    /// Go on with what happens from now on, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// How many of those that happened already
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let daemon = args.target.required()?;
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let mut out = stdout.lock();
    let mut write = |event: &Event| {
        if args.json {
            serde_json::to_writer(&mut out, event)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", line(event, style))?;
        }
        // Somebody waits for it, also behind a pipe.
        out.flush()
    };
    let recent = if args.limit > 0 { daemon.recent_events(args.limit)? } else { Vec::new() };
    for event in &recent {
        write(event)?;
    }
    if args.follow {
        for event in daemon.follow(recent.last().map(|event| event.id))? {
            write(&event?)?;
        }
    }
    Ok(Exit::Success)
}

/// An event on one line.
fn line(event: &Event, style: Style) -> String {
    let (tone, words) = words(&event.what);
    let name = style.paint(tone, &format!("{:18}", event.what.name()));
    format!("{}  {name}  {words}", text::time(event.time)).trim_end().to_owned()
}

fn words(what: &What) -> (Tone, String) {
    let rules = |rules: &usize, changed: bool| {
        format!("{} rules{}", number(rules), if changed { "" } else { ", as before" })
    };
    match what {
        What::Shed(shed) => (Tone::Bad, packet(shed)),
        What::SamplesLost { count } => (Tone::Warning, format!("{} samples of shed packets", number(count))),
        What::Reloaded { cause, changed, rules: count, milliseconds, .. } => {
            (Tone::Good, format!("{cause}: {}, in {milliseconds} ms", rules(count, *changed)))
        }
        What::ReloadFailed { cause, message } => (Tone::Bad, format!("{cause}: {message}")),
        What::Applied { trial: id, deadline: Some(deadline) } => {
            (Tone::Warning, format!("{id}: on trial until {}", text::time(*deadline)))
        }
        What::Applied { trial: id, deadline: None } | What::Confirmed { trial: id } => {
            (Tone::Good, id.clone())
        }
        What::RolledBack { trial: id, cause } => (Tone::Warning, format!("{id}: {cause}")),
        What::ModeChanged { mode: Mode::Enforce } => (Tone::Good, "enforce".to_owned()),
        What::ModeChanged { mode: Mode::Monitor } => (Tone::Warning, "monitor".to_owned()),
        What::Blocked { prefix, until, reason, origin } => {
            let until = until
                .map_or_else(|| "until ended".to_owned(), |until| format!("until {}", text::time(until)));
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            (
                Tone::Warning,
                format!("{} {until}, by {}{reason}", blocks::source(prefix), blocks::by(*origin, None)),
            )
        }
        What::Escalated { prefix, rule, denials, within, offence, until, under, client: _ } => (
            Tone::Warning,
            format!(
                "{} {}until {}: rule {rule} denied it {} times within {within}, offence {offence}",
                blocks::source(prefix),
                under.as_ref().map(|under| format!("put under {under} ")).unwrap_or_default(),
                text::time(*until),
                number(denials)
            ),
        ),
        What::BlockedMany { added, replaced, failed } => (
            Tone::Warning,
            format!("{} new, {} anew, {} failed", number(added), number(replaced), number(failed)),
        ),
        What::Unblocked { prefix } => (Tone::Good, blocks::source(prefix)),
        What::InterfaceAttached { interface, mode } => (Tone::Good, format!("{interface}: {mode}")),
        What::InterfaceGone { interface } => (Tone::Warning, interface.clone()),
        What::InterfaceFailed { interface, message } => (Tone::Bad, format!("{interface}: {message}")),
        What::Stopping => (Tone::Warning, "the daemon ends".to_owned()),
        What::Lost { count } => {
            (Tone::Warning, format!("{} events that this reader was too slow for", number(count)))
        }
    }
}

/// `tcp 192.0.2.1:4000 -> 198.51.100.1:80, 64 bytes at eth0: limited by web, limit 1 ×12`.
fn packet(shed: &Shed) -> String {
    let Shed { reason, rule, limit, source, destination, protocol, length, weight, interface, .. } = shed;
    let end = |address: Option<IpAddr>, port: Option<u16>| match (address, port) {
        (Some(address), Some(port)) => SocketAddr::new(address, port).to_string(),
        (Some(address), None) => address.to_string(),
        (None, _) => "?".to_owned(),
    };
    let (from, to) = (end(*source, shed.source_port), end(*destination, shed.destination_port));
    let protocol = protocol.as_deref().unwrap_or("?");
    let rule = rule.as_ref().map(|rule| format!(" by {rule}")).unwrap_or_default();
    let limit = limit.map(|limit| format!(", limit {limit}")).unwrap_or_default();
    let weight = if *weight > 1 { format!(" ×{}", number(weight)) } else { String::new() };
    format!("{protocol} {from} -> {to}, {length} bytes at {interface}: {reason}{rule}{limit}{weight}")
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn told(what: What) -> String {
        line(&Event { id: 1, time: UNIX_EPOCH, what }, Style::PLAIN)
    }

    #[test]
    fn a_shed_packet_reads_in_one_line() {
        let shed = Shed {
            reason: "limited".to_owned(),
            rule: Some("web".to_owned()),
            limit: Some(1),
            source: "2001:db8::1".parse().ok(),
            destination: "2001:db8::2".parse().ok(),
            protocol: Some("tcp".to_owned()),
            source_port: Some(4000),
            destination_port: Some(80),
            length: 74,
            weight: 1200,
            interface: "eth0".to_owned(),
        };
        assert_eq!(
            told(What::Shed(shed.clone())),
            "1970-01-01T00:00:00Z  shed                tcp [2001:db8::1]:4000 -> [2001:db8::2]:80, 74 bytes at \
             eth0: limited by web, limit 1 ×1,200"
        );
        let icmp = Shed {
            reason: "denied".to_owned(),
            rule: None,
            limit: None,
            protocol: Some("icmpv6".to_owned()),
            source_port: None,
            destination_port: None,
            weight: 1,
            ..shed
        };
        assert!(
            told(What::Shed(icmp)).ends_with("icmpv6 2001:db8::1 -> 2001:db8::2, 74 bytes at eth0: denied")
        );
    }

    #[test]
    fn what_says_nothing_more_ends_with_its_name() {
        assert_eq!(
            told(What::Unblocked { prefix: "192.0.2.7/32".parse().expect("a prefix") }),
            "1970-01-01T00:00:00Z  unblocked           192.0.2.7"
        );
        let applied = What::Applied { trial: "7".to_owned(), deadline: None };
        assert!(told(applied).ends_with("applied             7"));
    }
}
