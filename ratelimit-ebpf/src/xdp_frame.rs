//! A frame as XDP hands it over.

use core::ptr;

use aya_ebpf::{
    EbpfContext as _,
    bindings::xdp_md,
    helpers::generated::{bpf_ktime_get_coarse_ns, bpf_ktime_get_ns, bpf_xdp_get_buff_len},
    programs::XdpContext,
};
use ratelimit_common::{
    block_table,
    charge::Clock,
    gcra::TICK_SHIFT,
    packet::Frame,
    policy::{COARSE_LAG_NANOS, stage},
};

use crate::{constants, maps, opaque::opaque};

/// A frame: its first buffer and its whole length.
pub(crate) struct XdpFrame {
    data: usize,
    data_end: usize,
    /// The whole frame's length in bytes, all buffers.
    pub(crate) length: u64,
    context: *mut xdp_md,
}

impl XdpFrame {
    #[inline(always)]
    pub(crate) fn new(ctx: &XdpContext) -> Self {
        let stages = constants::STAGES.load();
        let length = if stages & stage::REPLAY != 0 {
            maps::REPLAY.get(0).map_or(0, |replay| u64::from(replay.length))
        } else {
            // SAFETY: the context is the one this program was called with.
            unsafe { bpf_xdp_get_buff_len(ctx.as_ptr().cast()) }
        };
        Self { data: ctx.data(), data_end: ctx.data_end(), length, context: ctx.ctx }
    }

    /// Index of the interface where it came in.
    #[inline(always)]
    pub(crate) fn interface(&self) -> u32 {
        // SAFETY: the context is the one this program was called with.
        unsafe { (*self.context).ingress_ifindex }
    }
}

impl Clock for XdpFrame {
    #[inline(always)]
    fn now(&self) -> u64 {
        ticks(|| {
            // SAFETY: the helper takes nothing and only reads the clock.
            unsafe { bpf_ktime_get_ns() }
        })
    }

    #[inline(always)]
    fn latest(&self) -> u64 {
        ticks(|| {
            // SAFETY: the helper takes nothing and only reads the time of the last tick (Linux 5.11).
            unsafe { bpf_ktime_get_coarse_ns() }.saturating_add(COARSE_LAG_NANOS)
        })
    }
}

/// A time of the kernel's, or under replay the virtual one, in ticks since the table was made; before that,
/// zero.
#[inline(always)]
fn ticks(kernel: impl FnOnce() -> u64) -> u64 {
    let nanos = if constants::STAGES.load() & stage::REPLAY != 0 {
        maps::REPLAY.get(0).map_or(0, |replay| replay.now)
    } else {
        kernel().saturating_sub(constants::EPOCH.load())
    };
    nanos << TICK_SHIFT
}

/// The monotonic clock, in nanoseconds.
#[inline(always)]
pub(crate) fn nanos() -> u64 {
    if constants::STAGES.load() & stage::REPLAY != 0 {
        maps::REPLAY.get(0).map_or(0, |replay| replay.now)
    } else {
        // SAFETY: the helper takes nothing and only reads the clock.
        unsafe { bpf_ktime_get_ns() }
    }
}

/// The time by which blocks end.
#[inline(always)]
pub(crate) fn seconds() -> u32 {
    block_table::seconds(coarse_nanos())
}

/// The monotonic clock: not later than now, and before it by less than [`COARSE_LAG_NANOS`].
#[inline(always)]
pub(crate) fn coarse_nanos() -> u64 {
    if constants::STAGES.load() & stage::REPLAY != 0 {
        maps::REPLAY.get(0).map_or(0, |replay| replay.now)
    } else {
        // SAFETY: the helper takes nothing and only reads the time of the last tick (Linux 5.11).
        unsafe { bpf_ktime_get_coarse_ns() }
    }
}

impl Frame for XdpFrame {
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let start = self.data + offset;
        if start + N > self.data_end {
            return None;
        }
        // SAFETY: the N bytes at `start` lie within the frame's first buffer, as just checked and as
        // the verifier checks again; a byte array needs no alignment.
        Some(unsafe { ptr::read(start as *const [u8; N]) })
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.length as usize
    }

    #[inline(always)]
    fn opaque(&self, value: usize) -> usize {
        opaque(value as u64, self.length) as usize
    }
}
