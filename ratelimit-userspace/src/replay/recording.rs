//! Files of recorded traffic, told apart by content.

use std::{
    fs::File,
    io::{BufReader, Chain, Cursor, Read as _},
    path::Path,
};

use super::capture::{Capture, CaptureError};
use crate::http::trace::Trace;

/// A trace in a file.
pub type RequestTrace = Trace<BufReader<Chain<Cursor<Vec<u8>>, File>>>;

/// An open file of recorded traffic.
#[derive(Debug)]
pub enum Recording {
    /// Packets.
    Packets(Capture),
    /// Requests.
    Requests(RequestTrace),
}

/// What captures begin with: pcap with micro- and nanoseconds in either byte order, a form of it that is
/// hardly used and known only to be refused, and pcapng.
const CAPTURES: [[u8; 4]; 6] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0x34, 0xcd, 0xb2, 0xa1],
    [0x0a, 0x0d, 0x0d, 0x0a],
];

// === impl Recording ===

impl Recording {
    /// Opens a file and looks at how it begins. It may be a pipe.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let open_error = |source| CaptureError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(open_error)?;
        // One read of a pipe would give too little.
        let mut head = Vec::new();
        (&file).take(4096).read_to_end(&mut head).map_err(open_error)?;
        if head.first_chunk().is_some_and(|magic| CAPTURES.contains(magic)) {
            return Capture::new(path, Cursor::new(head).chain(file)).map(Self::Packets);
        }
        match head.trim_ascii_start().first() {
            None | Some(b'{') => {
                let reader = BufReader::new(Cursor::new(head).chain(file));
                Ok(Self::Requests(Trace::new(path.to_owned(), reader)))
            }
            Some(_) => Err(CaptureError::NotACapture { path: path.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests;
