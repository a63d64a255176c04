//! The first bytes of a connection, within a time limit.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// What an HTTP/2 client sends first: RFC 9113, section 3.4.
const PREFACE: usize = 24;

/// A stream that fails unless the client's preface arrives in time. HTTP/2's keep-alive begins only after it,
/// so nothing else ends a connection on which a client sends nothing, or a byte now and then.
#[derive(Debug)]
pub(super) struct Prompt<S> {
    stream: S,
    /// Bytes that are still due, and until when.
    due: Option<(usize, Pin<Box<Sleep>>)>,
}

// === impl Prompt ===

impl<S> Prompt<S> {
    pub(super) fn new(stream: S, within: Duration) -> Self {
        Self { stream, due: Some((PREFACE, Box::pin(sleep(within)))) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, due } = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        if let Some((bytes, deadline)) = due {
            *bytes = bytes.saturating_sub(buf.filled().len() - before);
            if *bytes == 0 {
                *due = None;
            } else if deadline.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client did not begin to speak HTTP/2 in time",
                )));
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
