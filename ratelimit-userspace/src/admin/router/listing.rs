//! A list of blocks as the text of JSON, made while it is sent: there may be a million.

use std::{io, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use ipnet::IpNet;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    task::spawn_blocking,
    time::Instant,
};
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    admin::schema::{Block, Origin},
    network::blocks::Blocks,
};

/// Bytes of a piece, and how many of them may wait to be sent.
const PIECE: usize = 64 * 1024;
const PIECES: usize = 4;

/// A list that is not read within this time is cut off.
const TIMEOUT: Duration = Duration::from_mins(2);

/// What stands before the first block, before every other one, and after the last.
const FIRST: &[u8] = b"{\"blocks\":[";
const NEXT: &[u8] = b",\n";
const END: &[u8] = b"]}\n";

/// Which blocks are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Those that cover this or lie within it.
    pub(super) prefix: Option<IpNet>,
    /// Those that these made.
    pub(super) origin: Option<Origin>,
    /// How many more.
    pub(super) left: usize,
}

/// The text as far as it is made and not sent.
#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    empty: bool,
}

/// The list as a body. The permit is held until it is made.
pub(super) fn body(blocks: Blocks, mut wanted: Wanted, permit: Option<OwnedSemaphorePermit>) -> Body {
    let (sender, pieces) = mpsc::channel(PIECES);
    spawn_blocking(move || {
        let _permit = permit;
        let mut text = Text::new();
        let mut gone = false;
        let outcome = blocks.for_each(|block| {
            if gone || wanted.left == 0 {
                return;
            }
            let block = Block::from(block);
            if wanted.takes(&block) {
                text.add(&block);
                if text.bytes.len() >= PIECE {
                    gone = sender.blocking_send(Ok(text.take())).is_err();
                }
            }
        });
        // What is cut off is no JSON, so nobody takes it for the whole.
        let last = outcome.map(|()| text.end()).map_err(io::Error::other);
        // Whoever asked may be gone.
        let _ = sender.blocking_send(last);
    });
    let deadline = Instant::now() + TIMEOUT;
    Body::from_stream(ReceiverStream::new(pieces).map(move |piece| {
        if Instant::now() > deadline { Err(io::ErrorKind::TimedOut.into()) } else { piece }
    }))
}

// === impl Wanted ===

impl Wanted {
    /// Whether this is one more.
    fn takes(&mut self, block: &Block) -> bool {
        let Self { prefix, origin, left } = self;
        let takes = prefix
            .is_none_or(|prefix| block.prefix.contains(&prefix) || prefix.contains(&block.prefix))
            && origin.is_none_or(|origin| block.origin == origin)
            && *left > 0;
        *left -= usize::from(takes);
        takes
    }
}

// === impl Text ===

impl Text {
    fn new() -> Self {
        Self { bytes: FIRST.to_vec(), empty: true }
    }

    fn add(&mut self, block: &Block) {
        if !self.empty {
            self.bytes.extend_from_slice(NEXT);
        }
        self.empty = false;
        // Texts and times alone always have a JSON form.
        self.bytes.extend(serde_json::to_vec(block).unwrap_or_default());
    }

    fn take(&mut self) -> Bytes {
        std::mem::replace(&mut self.bytes, Vec::with_capacity(PIECE + PIECE / 8)).into()
    }

    fn end(mut self) -> Bytes {
        self.bytes.extend_from_slice(END);
        self.bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::admin::schema;

    fn block(prefix: &str, origin: Origin) -> Block {
        Block {
            prefix: prefix.parse().unwrap(),
            until: None,
            since: UNIX_EPOCH,
            reason: "\"quoted\"\n".to_owned(),
            origin,
            rule: None,
        }
    }

    #[test]
    fn pieces_make_one_text_of_json() {
        for count in [0, 1, 2, 5] {
            let blocks = vec![block("192.0.2.0/24", Origin::Rule); count];
            let mut text = Text::new();
            let mut pieces = Vec::new();
            for block in &blocks {
                text.add(block);
                pieces.push(text.take());
            }
            pieces.push(text.end());
            let read: schema::Blocks = serde_json::from_slice(&pieces.concat()).unwrap();
            assert_eq!(read.blocks, blocks);
        }
    }

    #[test]
    fn those_that_are_wanted_are_taken() {
        let all = [
            block("10.0.0.0/8", Origin::Command),
            block("10.1.2.3/32", Origin::Command),
            block("10.1.2.4/32", Origin::Rule),
            block("2001:db8::/32", Origin::Command),
        ];
        let taken = |prefix: Option<&str>, origin, left| {
            let mut wanted = Wanted { prefix: prefix.map(|prefix| prefix.parse().unwrap()), origin, left };
            let taken = all.iter().filter(|block| wanted.takes(block));
            taken.map(|block| block.prefix.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(taken(None, None, 9).len(), 4);
        assert_eq!(taken(Some("10.1.2.3/32"), None, 9), ["10.0.0.0/8", "10.1.2.3/32"], "what covers it");
        assert_eq!(taken(Some("10.1.0.0/16"), None, 9).len(), 3, "and what lies within it");
        assert_eq!(taken(Some("::/0"), None, 9), ["2001:db8::/32"]);
        assert_eq!(taken(None, Some(Origin::Rule), 9), ["10.1.2.4/32"]);
        assert_eq!(taken(None, None, 2).len(), 2);
        assert!(taken(None, None, 0).is_empty());
    }
}
