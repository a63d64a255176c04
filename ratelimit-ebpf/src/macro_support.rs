//! What the macros of aya-log expand to. The crate `aya-log-ebpf` has the same with a map in the old `maps`
//! section, with which libbpf, and so bpftool, refuses the whole object.

use aya_ebpf::{Global, btf_maps::RingBuf, macros::btf_map};
pub(crate) use aya_log_common::{
    Argument, DefaultFormatter, DisplayHint, Field, Header, IpFormatter, Level, LogValueLength,
};

/// Bytes of the ring of traces.
const RING: usize = 1 << 17;

/// Traces, under the name by which aya-log finds them.
#[btf_map(name = "AYA_LOGS")]
pub(crate) static AYA_LOGS: RingBuf<(), RING> = RingBuf::new();

/// The least urgent level that is told, by the name that aya-log gives it; 0: nothing is.
#[unsafe(no_mangle)]
pub(crate) static AYA_LOG_LEVEL: Global<u8> = Global::new(0);

/// Whether records of a level are told.
#[inline(always)]
pub(crate) fn level_enabled(level: Level) -> bool {
    level as u8 <= AYA_LOG_LEVEL.load()
}
