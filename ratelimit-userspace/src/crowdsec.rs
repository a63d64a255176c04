//! Decisions of `CrowdSec`, from the stream of its local API.
//!
//! `reader` asks again and again; [`decisions`] holds what was decided, pure. What becomes of blocks is the
//! daemon's affair.

pub mod decisions;
mod reader;

use tokio::sync::mpsc;

pub use self::reader::{ReadError, read};

/// Updates that wait for the daemon: the reader asks no further before the last one was taken.
const QUEUE: usize = 1;

/// What the reader has to tell.
#[derive(Debug)]
pub enum Update {
    /// Decisions came: all there are, or what is new since.
    Decisions {
        /// All there are.
        all: bool,
        /// They.
        stream: decisions::Stream,
    },
    /// None came. The reader begins anew.
    Failed(ReadError),
}

/// Where updates go, and where they come from.
pub fn updates() -> (mpsc::Sender<Update>, mpsc::Receiver<Update>) {
    mpsc::channel(QUEUE)
}
