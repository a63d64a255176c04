//! Verdicts on single packets, told through aya-log when asked: to find out why, not for every day. A record
//! costs microseconds, and what finds the ring full is lost.

use aya_log_ebpf_macros::debug;
use ratelimit_common::{
    address::Family,
    packet::ABSENT,
    record::{Reason, Replay},
};

use crate::{
    macro_support::{Level, level_enabled},
    maps,
    verdict::Verdict,
};

/// What the records say they are about.
const TARGET: &str = "verdict";

/// The packet was read, so its addresses are known.
const IS_PACKET: u64 = 1 << 32;
/// It is refused.
const REFUSED: u64 = 1 << 33;

/// Tells a verdict, if that is asked for.
#[inline(always)]
pub(crate) fn tell(verdict: &Verdict, is_packet: bool, length: u64) {
    if level_enabled(Level::Debug) {
        let flag = |flag, condition| if condition { flag } else { 0 };
        let about = u64::from(verdict.reason) | flag(IS_PACKET, is_packet) | flag(REFUSED, verdict.refused);
        write(about, verdict.rule, verdict.limit, length);
    }
}

/// A function that the verifier follows once: see [`crate::steps`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn write(about: u64, rule: u32, limit: u32, length: u64) -> u64 {
    let reason = name(about as u32);
    let word = if about & REFUSED != 0 { "refused" } else { "passed " };
    // As people count the rules of a file and the limits of a rule; 0: none.
    let number = |index: u32| if index == Replay::NONE { 0 } else { index + 1 };
    let (rule, limit) = (number(rule), number(limit));
    let packet = if about & IS_PACKET != 0 { maps::packet_at_hand() } else { None };
    match packet {
        None => debug!((), target: TARGET, "{} {} {} bytes", word, reason, length),
        Some(packet) => {
            let protocol = packet.protocol;
            let port = if packet.destination_port == ABSENT { 0 } else { packet.destination_port };
            match packet.source.family {
                Family::V4 => debug!(
                    (), target: TARGET, "{} {} {} bytes from {:i}, protocol {}, port {}, rule {}, limit {}",
                    word, reason, length, packet.source.v4_octets(), protocol, port, rule, limit
                ),
                Family::V6 => debug!(
                    (), target: TARGET, "{} {} {} bytes from {:i}, protocol {}, port {}, rule {}, limit {}",
                    word, reason, length, packet.source.v6_octets(), protocol, port, rule, limit
                ),
            }
        }
    }
    0
}

/// Bytes of a reason's name.
const NAME: usize = 24;

/// At least as many as there are reasons; a power of two, whose remainders the verifier understands.
const REASONS: usize = 32;

/// The names of all reasons, of one length: an object has no pointers between its constants.
static NAMES: [[u8; NAME]; REASONS] = {
    let mut names = [[b' '; NAME]; REASONS];
    let mut reason = 0;
    while reason < Reason::ALL.len() {
        let name = Reason::ALL[reason].name().as_bytes();
        let mut byte = 0;
        while byte < name.len() {
            names[reason][byte] = name[byte];
            byte += 1;
        }
        reason += 1;
    }
    names
};

/// The name of a reason, with spaces at its end.
#[inline(always)]
fn name(reason: u32) -> &'static str {
    let name = &NAMES[reason as usize % REASONS];
    // SAFETY: names of reasons are ASCII.
    unsafe { core::str::from_utf8_unchecked(name) }
}
