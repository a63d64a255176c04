//! The benchmark's packet source: gives each frame the next of a number of source addresses and sends it
//! out of one interface.
//!
//! It is run with live frames (`BPF_F_TEST_XDP_LIVE_FRAMES`), whose pages are recycled with the data of
//! the last round in them, so the header checksum is updated from the address that is there
//! ([RFC 1624](https://www.rfc-editor.org/rfc/rfc1624), equation 3), never from the template's.
#![no_std]
#![no_main]

use aya_ebpf::{
    Global,
    bindings::xdp_action::XDP_ABORTED,
    btf_maps::PerCpuArray,
    helpers::{bpf_redirect, generated::bpf_ktime_get_ns},
    macros::{btf_map, xdp},
    programs::XdpContext,
};

/// Where the checksum and the source address stand behind an untagged Ethernet header.
const CHECKSUM: usize = 14 + 10;
const SOURCE: usize = 14 + 12;

/// How many addresses there are, from [`FIRST`] on.
#[unsafe(no_mangle)]
static SOURCES: Global<u32> = Global::new(1);
/// The first of them, as a number.
#[unsafe(no_mangle)]
static FIRST: Global<u32> = Global::new(0);
/// Index of the interface to send from.
#[unsafe(no_mangle)]
static INTERFACE: Global<u32> = Global::new(0);

/// Nanoseconds from one frame to the next; 0 for as fast as it goes.
#[unsafe(no_mangle)]
static INTERVAL: Global<u64> = Global::new(0);

/// When the next frame is due, on the kernel's monotonic clock.
#[btf_map(name = "due")]
static DUE: PerCpuArray<u64, 1> = PerCpuArray::new();

/// The next address, counted from [`FIRST`].
#[btf_map(name = "next")]
static NEXT: PerCpuArray<u32, 1> = PerCpuArray::new();

#[xdp]
#[expect(clippy::needless_pass_by_value, reason = "the macro passes the context by value")]
fn bench_sender(ctx: XdpContext) -> u32 {
    match rewrite_source(&ctx) {
        Some(()) => {
            if INTERVAL.load() > 0 {
                wait_until_due();
            }
            // SAFETY: a helper without memory arguments.
            let action = unsafe { bpf_redirect(INTERFACE.load(), 0) };
            // The helper returns an XDP action, XDP_REDIRECT or XDP_ABORTED.
            u32::try_from(action).unwrap_or(XDP_ABORTED)
        }
        None => XDP_ABORTED,
    }
}

#[inline(always)]
fn rewrite_source(ctx: &XdpContext) -> Option<()> {
    let checksum = word_at(ctx, CHECKSUM)?;
    let high = word_at(ctx, SOURCE)?;
    let low = word_at(ctx, SOURCE + 2)?;
    let next = NEXT.get_ptr_mut(0)?;

    // SAFETY: the slot belongs to this CPU, and the test run keeps the program on it.
    let index = unsafe { *next };
    let following = index + 1;
    // SAFETY: as above.
    unsafe { *next = if following < SOURCES.load() { following } else { 0 } };

    let address = FIRST.load() + index;
    // SAFETY: `word_at` has checked that the three words lie within the frame.
    unsafe {
        let [high_new, low_new] = halves(address);
        let sum = u32::from(!u16::from_be(*checksum))
            + u32::from(!u16::from_be(*high))
            + u32::from(!u16::from_be(*low))
            + u32::from(high_new)
            + u32::from(low_new);
        let [carry, low_sum] = halves(sum);
        let [carry, low_sum] = halves(u32::from(carry) + u32::from(low_sum));
        *high = high_new.to_be();
        *low = low_new.to_be();
        *checksum = (!(carry + low_sum)).to_be();
    }
    Some(())
}

/// Waits for the frame's turn. One that is late puts all that follow off.
#[inline(always)]
fn wait_until_due() {
    /// Readings of the clock, each of at least 10 ns, before a frame is sent all the same.
    const READINGS: u32 = 1024;

    let Some(due) = DUE.get_ptr_mut(0) else { return };
    // SAFETY: the slot belongs to this CPU, and the test run keeps the program on it.
    let at = unsafe { *due };
    let mut now = 0;
    for _ in 0..READINGS {
        // SAFETY: the helper takes nothing and only reads the clock.
        now = unsafe { bpf_ktime_get_ns() };
        if now >= at {
            break;
        }
    }
    // SAFETY: as above.
    unsafe { *due = now + INTERVAL.load() };
}

/// The upper and the lower 16 bits.
#[inline(always)]
fn halves(value: u32) -> [u16; 2] {
    let [a, b, c, d] = value.to_be_bytes();
    [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
}

/// The 16-bit word at `offset`, if the frame holds all of it. Every offset used is even, and so is the
/// address at which a frame's data starts.
#[inline(always)]
fn word_at(ctx: &XdpContext, offset: usize) -> Option<*mut u16> {
    let start = ctx.data() + offset;
    (start + size_of::<u16>() <= ctx.data_end()).then_some(start as *mut u16)
}

/// Loops, so that the verifier refuses a program in which a panic is reachable.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
