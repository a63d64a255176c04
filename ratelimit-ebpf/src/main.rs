//! The XDP program: a thin shell over `ratelimit-common`.
//!
//! The packet's way is `parse -> listed? -> blocked? -> neighbour? -> malformed? -> override? -> classify ->
//! charge -> verdict -> next program?`. What is decided lives in `ratelimit-common`; here are the maps, the packet access, the atomics and the
//! one exit that counts. Every stage that the policy does not use is behind a load-time constant, so the
//! verifier removes it.
//!
//! Minimum kernel: 6.1 (frags-capable XDP and `bpf_xdp_get_buff_len` are from 5.18).
#![no_std]
#![no_main]
#![feature(asm_experimental_arch, core_intrinsics)]
#![expect(clippy::cast_possible_truncation, reason = "BPF is a 64-bit machine, and what is cut is bounded")]
#![expect(internal_features, reason = "stable atomics do not compile for BPF; see `atomic`")]

// The macros of aya-log look for what they need in the crate of this name.
extern crate self as aya_log_ebpf;

mod atomic;
mod blocks;
mod classify;
mod constants;
mod lists;
mod macro_support;
mod maps;
mod opaque;
mod overrides;
mod prefilter;
mod sampling;
mod steps;
mod trace;
mod verdict;
mod xdp_frame;

use aya_ebpf::{bindings::xdp_action::XDP_PASS, macros::xdp, programs::XdpContext};
use ratelimit_common::{
    charge::{Verdict as Charged, charge_by},
    packet::{self, NoPacket, Packet},
    policy::{Rule, listed, stage},
    record::{Event, Reason},
};
use steps::Calls;
use verdict::Verdict;
use xdp_frame::XdpFrame;

#[expect(clippy::needless_pass_by_value, reason = "`#[xdp]` passes it so")]
#[xdp(frags)]
fn ratelimit(ctx: XdpContext) -> u32 {
    let frame = XdpFrame::new(&ctx);
    let Some(packet) = maps::scratch() else {
        return XDP_PASS;
    };
    let kind = parse_into(&frame, packet);
    let action = judge(&frame, kind, maps::forget(packet));
    // Only here: the kernel allows 256 bytes of stack below a tail call, and none of a global function.
    if action == XDP_PASS && constants::STAGES.load() & stage::NEXT != 0 {
        // SAFETY: nothing here has to be dropped. If there is no program, this one goes on, and passes.
        unsafe { maps::NEXT.tail_call(&ctx, 0) };
    }
    action
}

/// What a frame is, in one register: [`NOT_IP`], [`CUT`], [`IP`], or else the [`Reason`] why it is malformed.
type Kind = u32;
const NOT_IP: Kind = u32::MAX;
const CUT: Kind = u32::MAX - 1;
const IP: Kind = u32::MAX - 2;

/// Parses a frame; `packet` is written if it is an IP packet.
///
/// This and [`judge`] are functions of their own, so that the stack of the first is free again for the
/// second: the verifier allows 512 bytes along a chain of calls.
#[inline(never)]
fn parse_into(frame: &XdpFrame, packet: &mut Packet) -> Kind {
    match packet::parse_into(frame, packet) {
        Ok(()) => IP,
        Err(NoPacket::NotIp) => NOT_IP,
        Err(NoPacket::Cut) => CUT,
        Err(NoPacket::Malformed(reason)) => reason as Kind,
    }
}

/// The verdict on one frame, counted.
#[inline(never)]
fn judge(frame: &XdpFrame, kind: Kind, packet: &Packet) -> u32 {
    let stages = constants::STAGES.load();
    let verdict = match kind {
        NOT_IP => Verdict::pass(Reason::NotIp),
        CUT => Verdict::pass(Reason::NoRule).cut(),
        IP => {
            let verdict = decide(stages, frame, packet);
            if packet.cut { verdict.cut() } else { verdict }
        }
        reason => malformed(stages, reason),
    };
    verdict::finish(frame, &packet.source, kind == IP, verdict)
}

/// The verdict on a packet whose addresses are known.
#[inline(always)]
fn decide(stages: u64, frame: &XdpFrame, packet: &Packet) -> Verdict {
    let listed = lists::look_up(stages, &packet.source);
    if listed & listed::ALLOW != 0 {
        return Verdict::pass(Reason::Allowed);
    }
    if lists::is_management(stages, listed, packet.destination_port) {
        return Verdict::pass(Reason::Management);
    }
    let denied = if packet.neighbour { listed::DENY_EXACT } else { listed::DENY };
    if listed & denied != 0 {
        return Verdict::refuse(Reason::Denied);
    }
    if blocks::is_blocked(stages, &packet.source, packet.neighbour) {
        return Verdict::refuse(Reason::Blocked);
    }
    if packet.neighbour {
        return Verdict::pass(Reason::Neighbour);
    }
    if let Some(reason) = packet.malformed {
        return malformed(stages, reason as Kind);
    }
    if packet.chain_too_long {
        verdict::count_event(Event::Ipv6ChainTooLong, 1);
    }
    if packet.cut {
        verdict::count_event(Event::BeyondFirstBuffer, 1);
    }
    if stages & stage::RULES == 0 {
        return Verdict::pass(Reason::NoRule);
    }
    let preferred = overrides::rule_of(stages, &packet.source);
    let Some((index, rule)) = classify::first_match(stages, packet, frame.length, preferred) else {
        return Verdict::pass(Reason::NoRule);
    };
    meet(index, rule, packet, frame)
}

#[inline(always)]
fn malformed(stages: u64, reason: Kind) -> Verdict {
    Verdict::new(reason, stages & stage::MALFORMED_PASS == 0)
}

/// Charges the limits of the rule that a packet meets.
#[inline(always)]
fn meet(index: u32, rule: &'static Rule, packet: &Packet, frame: &XdpFrame) -> Verdict {
    if rule.zero_limit != 0 {
        return Verdict::refuse(Reason::ZeroRate).by_limit(index, rule, rule.zero_limit - 1);
    }
    let hash_key = steps::table().hash_key;
    let calls = Calls { index, rule };
    let charged = charge_by(&calls, frame, hash_key, rule, &packet.source, frame.length);
    if charged.live_evicted != 0 {
        verdict::count_event(Event::LiveEvicted, u64::from(charged.live_evicted));
    }
    if charged.table_full {
        verdict::count_event(Event::TableFull, 1);
    }
    match charged.verdict {
        Charged::Admitted => Verdict::pass(Reason::WithinLimit).by_rule(index, rule),
        Charged::Raced => Verdict::pass(Reason::Raced).by_rule(index, rule),
        Charged::Refused { limit } => Verdict::refuse(Reason::Limited).by_limit(index, rule, limit),
    }
}

/// Loops, so that the verifier refuses a program in which a panic is reachable.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
