//! Verdicts, and the one exit that counts them.

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS};
use ratelimit_common::{
    address::Address,
    offenders,
    policy::{Rule, action, stage},
    record::{Event, Reason, Replay, Tally},
    sample::Refused,
};

use crate::{blocks, constants, maps, sampling, trace, xdp_frame::XdpFrame};

/// What is to become of a frame, and why.
#[derive(Clone, Copy)]
pub(crate) struct Verdict {
    /// A [`Reason`].
    pub(crate) reason: u32,
    pub(crate) refused: bool,
    /// Index of the rule, or [`Replay::NONE`].
    pub(crate) rule: u32,
    counter_slot: u32,
    /// Index of the limit that refused, or [`Replay::NONE`].
    pub(crate) limit: u32,
    /// The rule only counts.
    count_only: bool,
    /// The probability that the packet counts towards a block of its source: see [`ratelimit_common::policy::Block`].
    block_probability: u32,
    cut: bool,
}

impl Verdict {
    #[inline(always)]
    pub(crate) const fn new(reason: u32, refused: bool) -> Self {
        Self {
            reason,
            refused,
            rule: Replay::NONE,
            counter_slot: 0,
            limit: Replay::NONE,
            count_only: false,
            block_probability: 0,
            cut: false,
        }
    }

    #[inline(always)]
    pub(crate) const fn pass(reason: Reason) -> Self {
        Self::new(reason as u32, false)
    }

    #[inline(always)]
    pub(crate) const fn refuse(reason: Reason) -> Self {
        Self::new(reason as u32, true)
    }

    #[inline(always)]
    pub(crate) const fn by_rule(mut self, index: u32, rule: &Rule) -> Self {
        self.rule = index;
        self.counter_slot = rule.counter_slot;
        self.count_only = rule.action == action::COUNT;
        self.block_probability = rule.block.probability;
        self
    }

    #[inline(always)]
    pub(crate) const fn by_limit(mut self, index: u32, rule: &Rule, limit: u32) -> Self {
        self.limit = limit;
        self.by_rule(index, rule)
    }

    /// The counter slot of the rule, or [`Refused::NONE`].
    #[inline(always)]
    pub(crate) const fn counter_slot(&self) -> u32 {
        if self.rule == Replay::NONE { Refused::NONE } else { self.counter_slot }
    }

    #[inline(always)]
    pub(crate) const fn cut(mut self) -> Self {
        self.cut = true;
        self
    }
}

/// Counts a verdict and turns it into an XDP action: never `XDP_ABORTED`. `source` is that of the packet if
/// `is_packet`, else it says nothing.
#[inline(always)]
pub(crate) fn finish(frame: &XdpFrame, source: &Address, is_packet: bool, verdict: Verdict) -> u32 {
    let stages = constants::STAGES.load();
    let length = frame.length;
    let monitored = stages & stage::MONITOR != 0 || verdict.count_only;
    let would_drop = verdict.refused && monitored;

    if let Some(counters) = maps::REASON_COUNTERS.get_ptr_mut(verdict.reason) {
        // SAFETY: the pointer is this CPU's slot of a per-CPU array, and XDP programs of one CPU do not
        // interrupt each other, so nothing else reaches it meanwhile.
        let counters = unsafe { &mut *counters };
        let tally = if !verdict.refused {
            &mut counters.passed
        } else if would_drop {
            &mut counters.would_shed
        } else {
            &mut counters.shed
        };
        tally_up(tally, length);
    }
    if verdict.rule != Replay::NONE
        && let Some(counters) = maps::RULE_COUNTERS.get_ptr_mut(verdict.counter_slot)
    {
        // SAFETY: as above.
        let counters = unsafe { &mut *counters };
        if verdict.refused {
            let tallies = if would_drop { &mut counters.would_shed } else { &mut counters.shed };
            let limit = verdict.limit as usize % tallies.len();
            tally_up(&mut tallies[limit], length);
            if stages & stage::RULE_BLOCKS != 0
                && !would_drop
                && offenders::is_drawn(tallies[limit].packets, verdict.block_probability)
            {
                blocks::count_offence(verdict.rule, source);
            }
        } else {
            tally_up(&mut counters.passed, length);
        }
    }
    if stages & stage::SAMPLING != 0 {
        sampling::look(frame, &verdict, is_packet, monitored);
    }
    trace::tell(&verdict, is_packet, length);
    if stages & stage::REPLAY != 0 {
        report(&verdict, would_drop);
    }
    if verdict.refused && !monitored { XDP_DROP } else { XDP_PASS }
}

/// Counts an event on this CPU.
#[inline(always)]
pub(crate) fn count_event(event: Event, times: u64) {
    if let Some(count) = maps::EVENTS.get_ptr_mut(event as u32) {
        // SAFETY: as in `finish`.
        unsafe { *count += times };
    }
}

#[inline(always)]
fn tally_up(tally: &mut Tally, length: u64) {
    tally.packets += 1;
    tally.bytes += length;
}

/// Hands the details of a replayed packet's verdict to userspace.
#[inline(always)]
fn report(verdict: &Verdict, would_drop: bool) {
    if let Some(replay) = maps::REPLAY.get_ptr_mut(0) {
        // SAFETY: a program under replay is attached to nothing and runs one packet at a time.
        let replay = unsafe { &mut *replay };
        replay.reason = verdict.reason;
        replay.rule = verdict.rule;
        replay.limit = verdict.limit;
        replay.would_drop = u32::from(would_drop);
        replay.cut = u32::from(verdict.cut);
    }
}
