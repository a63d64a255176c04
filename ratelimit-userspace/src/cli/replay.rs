//! `ratelimit replay`.

mod packets;
mod requests;

use std::{
    io::{self, Write},
    path::PathBuf,
};

use comfy_table::Table;
use ratelimit::{
    config::{self, policy::Config},
    replay::recording::Recording,
};
use serde::Serialize;

use super::Exit;

/// Run a packet capture or a trace of requests through a rules file: what would it shed?
///
/// Which of both it is shows in the file. Either is judged on a virtual clock that follows it, with fresh
/// private state: nothing that is pinned or running is touched.
///
/// Every packet of a capture goes through the real program in the kernel, attached to nothing; `interfaces:`
/// may be absent. That needs `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON`. The capture is pcap or pcapng,
/// Ethernet; packets that it cut short are judged on what is there and cost their whole length.
///
/// A trace has one request a line, as JSON, and needs no privilege.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "\
Exits with 1 when the recording is damaged or the rules file invalid, 2 when a file cannot be read, 3 without the
privilege to run BPF programs.",
    after_long_help = "\
--json, for a capture, prints one line a packet, then one with the summary:
  {\"packet\":1,\"time\":0.0,\"verdict\":\"pass|drop\",\"reason\":R,\"rule\":NAME|null,\"limit\":INDEX|null,
   \"would_drop\":bool}; a packet that the capture cut short has \"truncated\":true as well
  {\"summary\":{packets, bytes, seconds, passed, dropped, would_drop, reasons, rules, sources, sources_error,
   clamped, truncated, headers_cut}}
time is in seconds since the first packet; a step back is clamped, and counted as clamped. R is one of
allowed, denied, no_rule, within_limit, limited, zero_rate, malformed_<kind>, not_ip, neighbour, raced.

A line of a trace is one of
  {\"t\":12.5,\"domain\":\"api\",\"descriptors\":[{\"entries\":[[\"client_ip\",\"192.0.2.1\"]],\"hits\":1}]}
  {\"t\":12.5,\"request\":{\"method\":\"GET\",\"path\":\"/v1/x\",\"peer\":\"192.0.2.1\",\"headers\":{\"x-api-key\":\"k\"}}}
t is in seconds since any epoch; it may step back, and lines are judged in the order of the file. hits may
also stand beside request; absent, it is 1; 0 reads, a negative number refunds. \"peek\":true charges nothing.
--json prints one answer a line:
  {\"t\":12.5,\"decision\":\"allow|deny|delay|shadow\",\"rule\":NAME|null,\"limit\":N|null,\"remaining\":N|null,
   \"reset\":S|null,\"retry_after\":N|null,\"delay\":S|null}

Exit codes:
  0  the whole recording was judged
  1  the recording is damaged or ends early (what came before is judged), or the rules file is invalid
  2  bad usage, or a file cannot be read
  3  the privilege to run BPF programs is missing

Examples:
  ratelimit replay attack.pcap --config rules.yaml
  ratelimit replay attack.pcapng --config rules.yaml --json | jq -c 'select(.verdict == \"drop\")'
  ratelimit replay requests.jsonl --config rules.yaml"
)]
pub(super) struct Args {
    /// The capture or trace
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The rules file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Print a line of JSON for every packet or request
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let Config { network, http, .. } = config::load(&args.config)?.config;
    let lacks = |section| {
        let (file, config) = (args.file.display(), args.config.display());
        anyhow::anyhow!("{config} has no {section}: section, so there is nothing to replay {file} against")
    };
    match Recording::open(&args.file)? {
        Recording::Packets(capture) => {
            packets::run(capture, &network.ok_or_else(|| lacks("network"))?, args.json)?;
        }
        Recording::Requests(trace) => requests::run(trace, http.ok_or_else(|| lacks("http"))?, args.json)?,
    }
    Ok(Exit::Success)
}

fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

fn write_table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}
