//! `ratelimit explain`.

mod packet;
mod request;

use std::path::PathBuf;

use super::{Exit, question::Source, target::Target};

/// Say what becomes of a packet or a request, by which stage and rule, and why
///
/// A packet is given by flags. Each stage before the rules tells why it decides or does not, each rule before
/// the one that the packet meets the condition that does not hold, and each limit of that rule what is left in
/// its bucket now. The policy in force is explained, or that of a rules file; the buckets are those in the kernel
/// if there are any, and nothing is taken from them.
///
/// A request is asked about at the running daemon, for it knows the counters; when none answers, the rules file
/// alone tells, as if nothing had been counted yet. Nothing is charged. Secrets show as what stands for them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--json prints, for a packet, one object
  packet    words
  assumed   list of words: what was not said and matters
  stages    list of {stage, decides, why}: allow, management, deny, blocked, neighbour
  rules     list of {rule, matches, why}, up to the one that it meets; empty if a stage decides
  limits    list of {limit, unit, left, of, cost, admits, wait, full_in}
  verdict   {verdict: \"pass\"|\"shed\"|\"would_shed\", reason, rule, limit}
  buckets   \"live\", or \"full\": as if nobody had sent yet
and for a request
  {\"counted\":\"daemon|nothing\",\"domain\",\"descriptors\":[{\"entries\",\"rule\",\"replaced\",\"counter\"}],\"answer\"}

Exit codes:
  0  explained
  1  the rules file is invalid, no policy is in force, or the daemon refuses
  2  bad usage, or a file that cannot be read
  3  this user may not read the pins; with --config it need not

Examples:
  ratelimit explain --source 192.0.2.7 --protocol tcp --destination-port 443 --syn
  ratelimit explain --source 2001:db8::7 --icmp-type echo-request --config rules.yaml --json
  ratelimit explain --config rules.yaml --request 'GET /api/users/7?x=1' --peer 192.0.2.1
  ratelimit explain --config rules.yaml --domain api --descriptor client_ip=192.0.2.1 --json")]
pub(super) struct Args {
    /// The rules file; for a packet: absent, the policy in force
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File with the bearer token that the daemon wants from peers that are not on its host
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    token_file: Option<PathBuf>,
    /// Print one object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    packet: packet::Asked,
    #[command(flatten)]
    request: request::Flags,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let Args { packet, request, config, token_file, json, target } = args;
    match (packet.source(), config) {
        (Some(source), config) => packet::run(packet, source, config.as_deref(), target, *json),
        (None, Some(config)) => {
            request::run(request, &Source::new(config.clone(), token_file.clone()), *json)
        }
        // Clap asks for one of them.
        (None, None) => anyhow::bail!("which packet or request?"),
    }
}
