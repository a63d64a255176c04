//! Server-sent events, one after the other.

use std::{io, time::Duration};

use http_body_util::BodyExt as _;
use tokio::time::timeout;

use super::{
    Client, ClientError,
    exchange::{Answering, Exchange, garbled},
};
use crate::admin::schema::Event;

/// A daemon that says nothing for so long, not even that nothing happens, is gone.
const SILENCE: Duration = Duration::from_mins(1);

/// Bytes of an event.
const MAX_EVENT: usize = 1 << 20;

/// Events as they happen: waits for the next one. Ends when the daemon does.
#[derive(Debug)]
pub struct Following<'a> {
    client: &'a Client,
    answering: Answering,
    events: Reader,
}

/// Takes the stream apart.
#[derive(Debug, Default)]
struct Reader {
    /// What came and is not read yet.
    bytes: Vec<u8>,
    /// The data of the event that is being read.
    data: String,
}

/// An event is longer than any that a daemon makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {MAX_EVENT} bytes")]
struct TooLong;

// === impl Following ===

impl<'a> Following<'a> {
    pub(super) fn begin(client: &'a Client, exchange: Exchange) -> Result<Self, ClientError> {
        let answering = client.runtime.block_on(exchange.begin(&client.socket))?;
        Ok(Self { client, answering, events: Reader::default() })
    }

    /// More of the stream; `None`: it has ended.
    fn more(&mut self) -> Option<Result<(), ClientError>> {
        let socket = &self.client.socket;
        let frame = self.answering.response.body_mut().frame();
        match self.client.runtime.block_on(async { timeout(SILENCE, frame).await }) {
            Ok(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
                Some(self.events.push(bytes).map_err(|error| garbled(socket, &error)))
            }
            Ok(Some(Err(error))) => {
                Some(Err(ClientError::Connection { socket: socket.clone(), source: io::Error::other(error) }))
            }
            Ok(None) => None,
            Err(_) => Some(Err(ClientError::Slow { socket: socket.clone(), patience: SILENCE })),
        }
    }
}

impl Iterator for Following<'_> {
    type Item = Result<Event, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(data) = self.events.next() {
                let event = serde_json::from_str(&data).map_err(|error| garbled(&self.client.socket, &error));
                return Some(event);
            }
            if let Err(error) = self.more()? {
                return Some(Err(error));
            }
        }
    }
}

// === impl Reader ===

impl Reader {
    fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.bytes.len() + self.data.len() + bytes.len() > MAX_EVENT {
            return Err(TooLong);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The data of the next event that is there as a whole.
    fn next(&mut self) -> Option<String> {
        while let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            let line = String::from_utf8_lossy(line.trim_ascii_end());
            if line.is_empty() {
                // Comments end in an empty line, too.
                if !self.data.is_empty() {
                    return Some(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whatever_pieces_they_come_in() {
        let text = b": quiet\n\nid: 7\nevent: stopping\ndata: {\"a\":\ndata:1}\n\n:\n\ndata: 2\r\n\r\ndata: unfinished";
        for piece in [1, 2, 5, text.len()] {
            let mut reader = Reader::default();
            let mut events = Vec::new();
            for piece in text.chunks(piece) {
                reader.push(piece).unwrap();
                events.extend(std::iter::from_fn(|| reader.next()));
            }
            assert_eq!(events, ["{\"a\":\n1}", "2"], "{piece}");
        }
    }

    #[test]
    fn an_event_without_end_takes_no_memory() {
        let mut reader = Reader::default();
        assert!((0..MAX_EVENT).any(|_| reader.push(&[b'x'; 1000]).is_err()));
        assert!(reader.bytes.len() <= MAX_EVENT);
    }
}
