//! Load on one endpoint, by h2load on the clients' CPU.

use std::{net::SocketAddr, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use super::{CLIENT_CPU, on_cpu, row::Endpoint};
use crate::lab::capture;

/// The load on one server's endpoint.
#[derive(Debug)]
pub(super) struct Load<'a> {
    /// Which endpoint.
    pub(super) endpoint: Endpoint,
    /// Where it is.
    pub(super) address: SocketAddr,
    /// The file with the body of every request.
    pub(super) body: &'a Path,
    /// Octets in the body of a right answer.
    pub(super) answer: u64,
}

/// What h2load says happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tally {
    succeeded: u64,
    status_2xx: u64,
    /// Octets of all answers' bodies.
    data: u64,
}

/// Requests a second.
const PACE: u32 = 16_000;

// === impl Load ===

impl Load<'_> {
    /// Makes this many requests; an error unless every one of them is answered as it should be.
    pub(super) fn run(&self, requests: u32) -> Result<()> {
        let text = on_cpu(CLIENT_CPU, || capture(&mut self.command(requests)))?;
        let tally =
            Tally::parse(&text).with_context(|| format!("failed to read what h2load says: {text}"))?;
        tally.verify(requests, self.answer)
    }

    /// Connections are kept, and both contenders are asked at the same pace, which either can keep. Asked
    /// as fast as they answer, the faster one would never let its client sleep, and so be spared what waking
    /// it costs.
    fn command(&self, requests: u32) -> Command {
        let Self { endpoint, address, body, .. } = self;
        let mut command = Command::new("h2load");
        command.args(["--requests", &requests.to_string(), "--data"]).arg(body);
        let (clients, path) = match endpoint {
            Endpoint::Check => {
                command.args(["--h1", "--header=content-type: application/json"]);
                (32, "/v1/check")
            }
            Endpoint::Grpc => {
                command.args(["--header=content-type: application/grpc", "--header=te: trailers"]);
                command.arg("--max-concurrent-streams=8");
                (4, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
            }
        };
        command.arg(format!("--clients={clients}")).arg(format!("--rps={}", PACE / clients));
        command.arg(format!("http://{address}{path}"));
        command
    }
}

// === impl Tally ===

impl Tally {
    /// Reads h2load's summary.
    fn parse(text: &str) -> Option<Self> {
        let line = |head| text.lines().find_map(|line| line.strip_prefix(head));
        let part = |head, tail| line(head)?.split(',').find_map(|part| part.strip_suffix(tail));
        let number = |head, tail| part(head, tail)?.trim().parse().ok();
        // "1.17KB (1200) data"
        let (_, data) = part("traffic: ", " data")?.rsplit_once('(')?;
        Some(Self {
            succeeded: number("requests: ", " succeeded")?,
            status_2xx: number("status codes: ", " 2xx")?,
            data: data.strip_suffix(')')?.parse().ok()?,
        })
    }

    /// Whether all of `requests` were answered by `answer` octets each.
    ///
    /// An error of gRPC has status 200 as well, but no body. Right answers differ by some digits.
    fn verify(self, requests: u32, answer: u64) -> Result<()> {
        let Self { succeeded, status_2xx, data } = self;
        let requests = u64::from(requests);
        ensure!(
            succeeded == requests && status_2xx == requests,
            "of {requests} requests {succeeded} were answered and {status_2xx} with success"
        );
        let expected = requests * answer;
        ensure!(
            data.abs_diff(expected) <= expected / 20,
            "the answers to {requests} requests have {data} octets, not {expected}: some are not right"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = "\
finished in 3.20s, 31250.00 req/s, 5.10MB/s
requests: 100000 total, 100000 started, 100000 done, 99998 succeeded, 2 failed, 1 errored, 0 timeout
status codes: 99998 2xx, 0 3xx, 1 4xx, 0 5xx
traffic: 16.31MB (17101234) total, 6.20MB (6500000) headers (space savings 92.31%), 9.15MB (9600000) data
                     min         max         mean         sd        +/- sd
time for request:      310us     12.31ms       980us       420us    81.20%
";

    #[test]
    fn the_summary_is_read() {
        let tally = Tally { succeeded: 99_998, status_2xx: 99_998, data: 9_600_000 };
        assert_eq!(Tally::parse(SUMMARY), Some(tally));
        assert_eq!(Tally::parse("Usage: h2load [OPTIONS]... [URI]..."), None);
    }

    #[test]
    fn every_request_must_have_its_answer() {
        let tally = |succeeded, status_2xx, data| Tally { succeeded, status_2xx, data };
        tally(100, 100, 9_600).verify(100, 96).unwrap();
        tally(100, 100, 9_700).verify(100, 96).unwrap();
        assert!(tally(99, 99, 9_504).verify(100, 96).is_err());
        assert!(tally(100, 99, 9_600).verify(100, 96).is_err());
        // Ten errors of gRPC.
        assert!(tally(100, 100, 8_640).verify(100, 96).is_err());
    }
}
