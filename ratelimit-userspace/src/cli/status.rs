//! `ratelimit status`.

use std::{
    io::{self, Write},
    time::{Duration, SystemTime},
};

use ratelimit::admin::{
    client::Client,
    read,
    schema::{
        AttachWish, BlockTotals, Daemon, Interface, Management, Mode, Policy, Reloads, SourcesPolicy, Status,
        Trial, text,
    },
};

use super::{
    Exit,
    output::{Style, Tone, number, table, write_json, write_table},
    target::Target,
};

/// Show what is enforced, and where, whether a daemon runs or not
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 1 when nothing is enforced.",
    after_long_help = "\
--json prints one object, as the daemon's GET /v1/status:
  pin_dir     string
  daemon      null when none runs, else {pid: number|null, command: string|null}
  policy      null, or {version, program_id, rules_file, since, uptime_seconds, mode, on_stop, malformed,
              sources: {ipv4_prefix, ipv6_prefix, capacity, when_full}, allow, deny (numbers of prefixes),
              interfaces: list of {name, mode}, rules (number), management: list of {prefix, ports},
              blocks_capacity, next (path or null)}
  interfaces  list of {name, index, mode, program_id, current, note}
                mode: \"native\", \"generic\", \"offloaded\"; null when the interface is gone or runs another
                program; current: whether it runs the program of this policy
  blocks      null, or {addresses, prefixes, by_rules}
  reloads     null when no daemon answers, else {succeeded, failed, last_ok, last_success, last_failure, error}
  trial       null, or {id, deadline}: the policy in force is on trial
times are in RFC 3339

Exit codes:
  0  a policy is in force
  1  none is
  3  this user may neither read the pins nor ask the daemon

Examples:
  ratelimit status
  ratelimit status --json | jq -r '.interfaces[] | \"\\(.name) \\(.mode)\"'"
)]
pub(super) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let status = look(&args.target)?;
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let mut out = stdout.lock();
    if args.json {
        write_json(&mut out, &status)?;
    } else {
        write_text(&mut out, &status, SystemTime::now(), style)?;
    }
    Ok(if status.interfaces.is_empty() && status.policy.is_none() { Exit::Failure } else { Exit::Success })
}

/// What is pinned, and what only the daemon knows.
fn look(target: &Target) -> anyhow::Result<Status> {
    let mut status = target.read(read::status, Client::status)?;
    // Whatever is wrong with it: what is pinned can be told.
    if let Ok(told) = target.client()?.status()
        && told.pin_dir == status.pin_dir
    {
        status.daemon = status.daemon.or(told.daemon);
        status.reloads = told.reloads;
        status.trial = told.trial;
    }
    Ok(status)
}

fn write_text(out: &mut impl Write, status: &Status, now: SystemTime, style: Style) -> io::Result<()> {
    let Status { pin_dir, daemon, policy, interfaces, blocks, reloads, trial } = status;
    let daemon = match daemon {
        Some(Daemon { pid: Some(pid), .. }) => style.paint(Tone::Good, &format!("running, process {pid}")),
        Some(Daemon { pid: None, .. }) => style.paint(Tone::Good, "running"),
        None => style.paint(Tone::Warning, "not running"),
    };
    writeln!(out, "daemon      {daemon}")?;
    match policy {
        Some(policy) => write_policy(out, policy, style)?,
        None if interfaces.is_empty() => {
            writeln!(out, "policy      nothing is enforced: nothing is pinned in {pin_dir}")?;
        }
        None => writeln!(out, "policy      none is recorded")?,
    }
    if let Some(Trial { id, deadline }) = trial {
        let left = Duration::from_secs(deadline.duration_since(now).unwrap_or_default().as_secs());
        let words = format!("on trial (id {id}), goes back in {} unless confirmed", text::duration(left));
        writeln!(out, "trial       {}", style.paint(Tone::Warning, &words))?;
    }
    if let Some(BlockTotals { addresses, prefixes, by_rules }) = blocks {
        let [addresses, prefixes, by_rules] = [addresses, prefixes, by_rules].map(number);
        writeln!(out, "blocks      {addresses} addresses, {prefixes} prefixes, {by_rules} by rules")?;
    }
    if let Some(Reloads { last_ok: false, last_failure, error, .. }) = reloads {
        let when = last_failure.map(|when| format!(" at {}", text::time(when))).unwrap_or_default();
        let words = format!("failed{when}, what was in force before still is");
        writeln!(out, "reload      {}", style.paint(Tone::Bad, &words))?;
        for line in error.iter().flat_map(|error| error.lines()) {
            writeln!(out, "            {line}")?;
        }
    }
    if policy.is_none() && interfaces.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    write_interfaces(out, interfaces, style)
}

fn write_policy(out: &mut impl Write, policy: &Policy, style: Style) -> io::Result<()> {
    let Policy {
        version,
        program_id,
        rules_file,
        since,
        uptime_seconds,
        mode,
        on_stop,
        malformed,
        sources,
        allow,
        deny,
        interfaces,
        rules,
        management,
        blocks_capacity: _,
        next,
    } = policy;
    let uptime = humantime::format_duration(Duration::from_secs(*uptime_seconds));
    writeln!(out, "rules file  {}", rules_file.display())?;
    writeln!(out, "in force    for {uptime}, since {}", text::time(*since))?;
    writeln!(out, "program     ratelimit {version}, id {program_id}")?;
    let mode = match mode {
        Mode::Enforce => "enforce".to_owned(),
        Mode::Monitor => style.paint(Tone::Warning, "monitor: nothing is shed"),
    };
    writeln!(out, "mode        {mode}; on stop: {on_stop}; malformed frames: {malformed}")?;
    let (allow, deny) = (number(*allow as u64), number(*deny as u64));
    writeln!(out, "rules       {} (ratelimit rules); lists: {allow} allowed, {deny} denied", number(*rules))?;
    let SourcesPolicy { ipv4_prefix, ipv6_prefix, capacity, when_full } = sources;
    let capacity = number(*capacity);
    writeln!(
        out,
        "sources     IPv4 by /{ipv4_prefix}, IPv6 by /{ipv6_prefix}; room for {capacity}, when full: {when_full}"
    )?;
    let patterns: Vec<_> = interfaces
        .iter()
        .map(|AttachWish { name, .. }| name.as_str())
        .filter(|name| name.contains(['*', '?', '[']))
        .collect();
    if !patterns.is_empty() {
        writeln!(out, "patterns    {}", patterns.join(", "))?;
    }
    for Management { prefix, ports } in management {
        writeln!(out, "management  {prefix} is never shed at port {}", ports.join(", "))?;
    }
    if let Some(next) = next {
        writeln!(out, "next        what passes goes on to {}", next.display())?;
    }
    Ok(())
}

fn write_interfaces(out: &mut impl Write, interfaces: &[Interface], style: Style) -> io::Result<()> {
    if interfaces.is_empty() {
        let words = style.paint(Tone::Bad, "no interface is attached: nothing is enforced");
        return writeln!(out, "{words}");
    }
    let mut shown = table(&["INTERFACE", "MODE", "PROGRAM", ""], 4);
    for Interface { name, mode, program_id, note, .. } in interfaces {
        let mode = mode.map_or_else(|| "-".to_owned(), |mode| mode.to_string());
        let program = program_id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        shown.add_row([name.as_str(), &mode, &program, note.as_deref().unwrap_or_default()]);
    }
    write_table(out, &shown, style)
}
