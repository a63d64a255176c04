//! Verdicts on single packets as debug lines of the log, written by the program through aya-log.

use std::io;

use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};
use tokio::{
    io::{Interest, unix::AsyncFd},
    task::JoinHandle,
};
use tracing::debug;

use super::program::Program;

/// The ring that the program writes its records to, by the name that aya-log gives it.
pub(super) const RING: &str = "AYA_LOGS";
/// Bytes of a ring that nothing is written to: a whole page, of whatever size a kernel has.
pub(super) const SMALLEST: u32 = 1 << 16;
/// The load-time constant that holds the least urgent level told.
pub(super) const LEVEL: &str = aya_log::LEVEL;
/// What that is for no records at all, and for all that the program has.
pub(super) const OFF: u8 = 0;
pub(super) const DEBUG: u8 = aya_log::Level::Debug as u8;

/// Logs what one generation of the program tells, as long as it lives.
#[derive(Debug)]
pub struct Trace(JoinHandle<()>);

// === impl Trace ===

impl Trace {
    /// Begins with a program that was loaded to tell its verdicts. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the ring cannot be waited for, or was taken before.
    pub fn begin(program: &mut Program) -> io::Result<Self> {
        let logger = EbpfLogger::init_with_logger(program.ebpf(), DebugLines).map_err(io::Error::other)?;
        #[expect(deprecated, reason = "what replaces it is unsafe; see `super::samples`")]
        let mut ring = AsyncFd::with_interest(logger, Interest::READABLE)?;
        Ok(Self(tokio::spawn(async move {
            while let Ok(mut ready) = ring.readable_mut().await {
                ready.get_inner_mut().flush();
                ready.clear_ready();
            }
        })))
    }
}

/// Traces as lines of this program's own log. Nothing else comes through `log`: aya has much to say there.
struct DebugLines;

impl Log for DebugLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        debug!("{}", record.args());
    }

    fn flush(&self) {}
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.0.abort();
    }
}
