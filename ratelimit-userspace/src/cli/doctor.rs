//! `ratelimit doctor`.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use ratelimit::{
    config,
    network::{
        doctor::{self, Finding, Severity, look},
        state::StateDir,
    },
};
use serde::Serialize;

use super::{
    AdminSocket, Exit, PinDir,
    output::{Style, Tone, write_json},
};

/// Look for what stands in the way of limiting packets on this host, and say what to do about it
///
/// Looks at the kernel, the BPF compiler and memory; at what is pinned, and who works with it; and at each
/// interface that the policy in force names (or the rules file that --config gives, else at all): the XDP mode
/// and why it is not native, offloads that hide VLAN tags or merge packets, queues and the CPUs that serve them,
/// bonds, VLANs and bridges, XDP programs of others. Changes nothing. Sees most as root, and says what it could
/// not look at.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 1 when there is a problem.",
    after_long_help = "\
--json prints {\"findings\":[…]}, each
  {severity, check, subject, what, why, remedy}
    severity  \"ok\", \"note\", \"warning\" or \"problem\"
    check     what was checked, a name that stays the same: kernel, capabilities, jit, bpf_statistics, memory,
              daemon, admin_socket, stale_links, other_program, layout, versions, leftovers, trial, table,
              interface, link, link_layer, kind, members, foreign_program, attached, xdp_mode, vlan_tags,
              merged_frames, queues, interrupts, lost_frames, unseen
    subject   \"host\", a path, or an interface
    why, remedy  text or null

Exit codes:
  0  no problem; there may be warnings
  1  there is a problem, or the rules file is invalid
  2  bad usage, or a file that cannot be read

Examples:
  ratelimit doctor
  ratelimit doctor --config /etc/ratelimit/rules.yaml
  ratelimit doctor --json | jq -r '.findings[] | select(.severity == \"problem\") | .remedy'"
)]
pub(super) struct Args {
    /// Judge the host by this rules file, not by the policy in force
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pin_dir: PinDir,
    #[command(flatten)]
    admin_socket: AdminSocket,
}

#[derive(Serialize)]
struct Report<'a> {
    findings: &'a [Finding],
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let config = args.config.as_ref().map(|path| config::load(path)).transpose()?;
    let facts = look::look(look::Places {
        state: &StateDir::new(&args.pin_dir.path),
        admin_socket: &args.admin_socket.path,
        rules: args.config.clone().zip(config.as_ref().map(|loaded| &loaded.config)),
    });
    let findings = doctor::examine(&facts);
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let mut out = stdout.lock();
    if args.json {
        write_json(&mut out, &Report { findings: &findings })?;
    } else {
        write_text(&mut out, &findings, style)?;
    }
    let worst = findings.iter().map(|finding| finding.severity).max();
    Ok(if worst == Some(Severity::Problem) { Exit::Failure } else { Exit::Success })
}

fn write_text(out: &mut impl Write, findings: &[Finding], style: Style) -> io::Result<()> {
    let width = findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    for Finding { severity, subject, what, why, remedy, .. } in findings {
        let (word, tone) = word(*severity);
        let word = style.paint(tone, &format!("{word:7}"));
        writeln!(out, "{word}  {subject:width$}  {what}")?;
        for (word, text) in [("why", why), ("do", remedy)] {
            if let Some(text) = text {
                writeln!(out, "{:9}{:width$}  {word:3}  {text}", "", "")?;
            }
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    writeln!(out, "{problems} problem{}, {warnings} warning{}", plural(problems), plural(warnings))
}

fn word(severity: Severity) -> (&'static str, Tone) {
    match severity {
        Severity::Ok => ("ok", Tone::Good),
        Severity::Note => ("note", Tone::Heading),
        Severity::Warning => ("warning", Tone::Warning),
        Severity::Problem => ("problem", Tone::Bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_line_up_with_their_reasons_beneath() {
        let finding = |severity, subject: &str, remedy: Option<&str>| Finding {
            severity,
            check: "check",
            subject: subject.to_owned(),
            what: "what it is".to_owned(),
            why: remedy.map(|_| "it matters".to_owned()),
            remedy: remedy.map(str::to_owned),
        };
        let findings =
            [finding(Severity::Ok, "host", None), finding(Severity::Warning, "enp3s0", Some("mend it"))];
        let mut out = Vec::new();
        write_text(&mut out, &findings, Style::PLAIN).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text,
            "ok       host    what it is\n\
             warning  enp3s0  what it is\n                 \
             why  it matters\n                 \
             do   mend it\n\
             0 problems, 1 warning\n"
        );
    }
}
