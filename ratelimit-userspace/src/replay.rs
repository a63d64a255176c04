//! Recorded traffic against a policy, on a virtual clock that follows it and with fresh private state: every
//! frame of a capture goes through the real program by `BPF_PROG_TEST_RUN`, attached to nothing, and every
//! request of a trace through the limiter ([`requests`]). Memory does not grow with the recording.

pub mod capture;
pub mod recording;
pub mod requests;
pub mod sources;
pub mod summary;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ratelimit_common::{
    address::{Address, Family},
    packet::{self, Parsed},
    record::Reason,
};

use self::capture::{Capture, CaptureError, Frame};
use crate::network::program::{Program, TestRunError};

/// The kernel runs a program on nothing shorter than an Ethernet header.
const SHORTEST: usize = 14;
/// What the program is given of a frame: what any driver's first buffer holds. It learns the whole
/// length apart, and headers beyond are out of its reach here as they are on an interface.
const FIRST_BUFFER: usize = 2048;

/// What became of one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about one frame")]
pub struct Judgement {
    /// Seconds since the first frame.
    pub seconds: f64,
    /// Length on the wire in bytes: what the frame costs.
    pub length: u32,
    /// Why.
    pub reason: Reason,
    /// Dropped.
    pub dropped: bool,
    /// Passed only because the policy or the rule monitors.
    pub would_drop: bool,
    /// Index of the rule that it met.
    pub rule: Option<usize>,
    /// Index of the limit that refused, within the rule.
    pub limit: Option<usize>,
    /// Its source, if it has one.
    pub source: Option<IpAddr>,
    /// The capture holds less than the whole frame.
    pub truncated: bool,
    /// A header that the parser wanted lies beyond what the capture holds.
    pub headers_cut: bool,
    /// Its time lies before that of the frame before, and was clamped to it.
    pub clamped: bool,
}

/// Why a replay stops.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The capture cannot be read, or not to its end.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The kernel refuses to run the program.
    #[error(transparent)]
    Run(#[from] TestRunError),
    /// What was found cannot be written.
    #[error("failed to write the verdicts")]
    Write(#[from] io::Error),
}

/// Replays a capture and hands out the judgement on every frame, in order.
pub fn replay(
    capture: &mut Capture,
    program: &mut Program,
    mut observe: impl FnMut(&Judgement) -> io::Result<()>,
) -> Result<(), ReplayError> {
    let mut clock: Option<Clock> = None;
    while let Some(frame) = capture.next_frame()? {
        let clock = clock.get_or_insert(Clock { first: frame.time, latest: frame.time });
        let clamped = clock.advance(frame.time);
        let judgement = judge(program, &frame, clock.elapsed(), clamped)?;
        observe(&judgement)?;
    }
    Ok(())
}

/// Time since the first frame, which never steps back.
#[derive(Clone, Copy, Debug)]
struct Clock {
    first: u128,
    latest: u128,
}

impl Clock {
    /// Follows the capture; true when it stepped back and was held.
    fn advance(&mut self, time: u128) -> bool {
        let stepped_back = time < self.latest;
        self.latest = self.latest.max(time);
        stepped_back
    }

    /// Nanoseconds, saturating after 584 years.
    fn elapsed(&self) -> u64 {
        u64::try_from(self.latest - self.first).unwrap_or(u64::MAX)
    }
}

fn judge(
    program: &mut Program,
    frame: &Frame<'_>,
    now: u64,
    clamped: bool,
) -> Result<Judgement, TestRunError> {
    let Frame { data, length, .. } = *frame;
    let held = Held { data: &data[..data.len().min(FIRST_BUFFER)], length: length as usize };
    let parsed = packet::parse(&held);
    let mut judgement = Judgement {
        seconds: std::time::Duration::from_nanos(now).as_secs_f64(),
        length,
        reason: Reason::NotIp,
        dropped: false,
        would_drop: false,
        rule: None,
        limit: None,
        source: match parsed {
            Parsed::Ip(packet) => Some(ip(&packet.source)),
            _ => None,
        },
        truncated: data.len() < length as usize,
        headers_cut: parsed == Parsed::Cut,
        clamped,
    };
    if held.data.len() >= SHORTEST {
        let verdict = program.test_run(held.data, length, now)?;
        judgement.reason = verdict.reason;
        judgement.dropped = verdict.dropped;
        judgement.would_drop = verdict.would_drop;
        judgement.rule = verdict.rule;
        judgement.limit = verdict.limit;
        judgement.headers_cut = verdict.cut;
    } else if parsed == Parsed::Cut {
        // What the program says of a frame whose addresses are out of its reach.
        judgement.reason = Reason::NoRule;
    }
    Ok(judgement)
}

fn ip(address: &Address) -> IpAddr {
    match address.family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from(address.v4_octets())),
        Family::V6 => IpAddr::V6(Ipv6Addr::from(address.v6_octets())),
    }
}

/// What a capture holds of a frame, as the parser sees it.
struct Held<'a> {
    data: &'a [u8],
    length: usize,
}

impl packet::Frame for Held<'_> {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.data.get(offset..)?.first_chunk().copied()
    }

    fn length(&self) -> usize {
        self.length
    }
}
