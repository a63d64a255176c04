//! The least that an XDP program can do to shed a packet: what the benchmark measures the limiter against.
#![no_std]
#![no_main]

use aya_ebpf::{bindings::xdp_action::XDP_DROP, macros::xdp, programs::XdpContext};

#[xdp(frags)]
fn bench_drop(_: XdpContext) -> u32 {
    XDP_DROP
}

/// Loops, so that the verifier refuses a program in which a panic is reachable.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
