//! `ratelimit status`.

use std::{
    io::{self, Write as _},
    time::{Duration, UNIX_EPOCH},
};

use ratelimit::network::{
    description::Description,
    interfaces::Mode,
    links::{Links, Standing},
    state::StateDir,
};
use serde::Serialize;

use super::{
    Exit, PinDir,
    output::{number, table},
};

/// Show what is enforced, and where, whether a daemon runs or not
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 1 when nothing is pinned.",
    after_long_help = "\
Exits with 1 when nothing is pinned.

--json prints one object:
  pin_dir      string
  daemon       null when none runs, else {pid: number|null, command: string|null}
  interfaces   list of {name, index, mode, program_id, current}
                 mode: \"native\", \"generic\", \"offloaded\"; null when the interface is gone or runs
                 another program
                 current: whether it runs the program of this policy
  uptime       seconds for which the policy has been in force; null without a policy
  policy       null, or {version, program_id, rules_file, loaded_at (seconds since 1970),
                 loaded_at_boottime (nanoseconds), mode, on_stop, malformed,
                 sources {ipv4_prefix, ipv6_prefix, capacity, when_full}, allow, deny (numbers of prefixes),
                 interfaces [{name, mode}], rules [{name, counter_slot, count_only, limits}],
                 matches [string for each rule], slots {name: slot}}

Examples:
  ratelimit status
  ratelimit status --json | jq -r '.interfaces[] | \"\\(.name) \\(.mode)\"'"
)]
pub(super) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pin_dir: PinDir,
}

#[derive(Debug, Serialize)]
struct Status {
    pin_dir: String,
    daemon: Option<Daemon>,
    interfaces: Vec<Interface>,
    uptime: Option<u64>,
    policy: Option<Description>,
}

#[derive(Debug, Serialize)]
struct Daemon {
    pid: Option<u32>,
    command: Option<String>,
}

#[derive(Debug, Serialize)]
struct Interface {
    name: String,
    index: u32,
    mode: Option<Mode>,
    program_id: Option<u32>,
    current: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let state = StateDir::new(&args.pin_dir.path);
    let mut out = io::stdout().lock();
    if !state.exists()? {
        if args.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&Status::empty(&state))?)?;
        } else {
            writeln!(out, "nothing is enforced: nothing is pinned in {}", state.root().display())?;
        }
        return Ok(Exit::Failure);
    }
    let status = Status::read(&state)?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?;
    } else {
        status.write(&mut out)?;
    }
    Ok(if status.interfaces.is_empty() && status.policy.is_none() { Exit::Failure } else { Exit::Success })
}

// === impl Status ===

impl Status {
    fn empty(state: &StateDir) -> Self {
        Self {
            pin_dir: state.root().display().to_string(),
            daemon: None,
            interfaces: Vec::new(),
            uptime: None,
            policy: None,
        }
    }

    fn read(state: &StateDir) -> anyhow::Result<Self> {
        let policy = Description::read(&state.state())?;
        let program_id = policy.as_ref().map(|policy| policy.program_id);
        let interfaces = Links::new(state.links())
            .standing()?
            .into_iter()
            .map(|Standing { index, name, program_id: runs, mode }| Interface {
                name,
                index,
                mode,
                program_id: runs,
                current: mode.is_some() && runs == program_id,
            })
            .collect();
        let daemon = state.holder().map(|holder| Daemon { pid: holder.pid, command: holder.command });
        let uptime = policy.as_ref().map(Description::uptime);
        Ok(Self { daemon, interfaces, uptime, policy, ..Self::empty(state) })
    }

    fn write(&self, out: &mut impl io::Write) -> anyhow::Result<()> {
        match &self.daemon {
            Some(Daemon { pid: Some(pid), .. }) => writeln!(out, "daemon      running, process {pid}")?,
            Some(Daemon { pid: None, .. }) => writeln!(out, "daemon      running")?,
            None => writeln!(out, "daemon      not running")?,
        }
        if let Some(policy) = &self.policy {
            write_policy(policy, out)?;
        } else {
            writeln!(out, "policy      none is recorded")?;
        }

        writeln!(out)?;
        if self.interfaces.is_empty() {
            writeln!(out, "no interface is attached: nothing is enforced")?;
        } else {
            let mut interfaces = table(&["INTERFACE", "MODE", "PROGRAM", ""], 4);
            for Interface { name, mode, program_id, current, .. } in &self.interfaces {
                let mode = mode.map_or_else(|| "-".to_owned(), |mode| mode.to_string());
                let program = program_id.map_or_else(|| "-".to_owned(), |id| id.to_string());
                let note = match (mode.as_str(), current) {
                    ("-", _) => "gone, in another network namespace, or something else runs on it",
                    (_, false) => "runs another policy: the daemon was interrupted, start it again",
                    (_, true) => "",
                };
                interfaces.add_row([name.as_str(), &mode, &program, note]);
            }
            writeln!(out, "{}", interfaces.trim_fmt())?;
        }

        if let Some(policy) = self.policy.as_ref().filter(|policy| !policy.rules.is_empty()) {
            writeln!(out)?;
            let mut rules = table(&["RULE", "APPLIES TO", "LIMITS"], 3);
            for (rule, matches) in policy.rules.iter().zip(&policy.matches) {
                let action = if rule.count_only { " (counts only)" } else { "" };
                let name = format!("{}{action}", rule.name);
                rules.add_row([name.as_str(), matches, &rule.limits.join("\n")]);
            }
            writeln!(out, "{}", rules.trim_fmt())?;
        }
        Ok(())
    }
}

fn write_policy(policy: &Description, out: &mut impl io::Write) -> anyhow::Result<()> {
    let Description {
        version,
        program_id,
        rules_file,
        loaded_at,
        mode,
        on_stop,
        malformed,
        sources,
        allow,
        deny,
        ..
    } = policy;
    let loaded = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(*loaded_at));
    let uptime = humantime::format_duration(Duration::from_secs(policy.uptime()));
    writeln!(out, "rules file  {}", rules_file.display())?;
    writeln!(out, "in force    for {uptime}, since {loaded}")?;
    writeln!(out, "program     ratelimit {version}, id {program_id}")?;
    writeln!(out, "mode        {mode}; on stop: {on_stop}; malformed frames: {malformed}")?;
    let (allow, deny) = (number(*allow as u64), number(*deny as u64));
    writeln!(out, "lists       {allow} allowed, {deny} denied")?;
    writeln!(
        out,
        "sources     IPv4 by /{}, IPv6 by /{}; room for {}, when full: {}",
        sources.ipv4_prefix,
        sources.ipv6_prefix,
        number(sources.capacity),
        sources.when_full
    )?;
    Ok(())
}
