//! A connection that fails when its client takes too long.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep, sleep_until},
};

use super::{HEADER_TIMEOUT, IDLE_TIMEOUT, WRITE_TIMEOUT};

const IDLE: u8 = 0;
const HEADER: u8 = 1;
const SERVING: u8 = 2;
const ANSWERED: u8 = 3;

/// How far a connection is: idle, amid a header, serving, answered (and idle as soon as nothing more is
/// there to read). Only the task of the connection touches it.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

/// A stream whose reads fail after [`IDLE_TIMEOUT`] without a request or [`HEADER_TIMEOUT`] amid a header, and
/// whose writes fail after [`WRITE_TIMEOUT`]. While a request is served its handler limits the time.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    stage: Arc<Stage>,
    /// When reading fails.
    deadline: Instant,
    /// Fires at the deadline, or before it: it is set again only then, not for every request.
    timer: Pin<Box<Sleep>>,
    /// There while a write waits.
    writing: Option<Pin<Box<Sleep>>>,
}

// === impl Stage ===

impl Stage {
    /// A request is there as a whole header.
    pub(super) fn serve(&self) {
        self.set(SERVING);
    }

    /// Its answer is ready to be written.
    pub(super) fn answer(&self) {
        self.set(ANSWERED);
    }

    fn set(&self, stage: u8) {
        self.0.store(stage, Ordering::Relaxed);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Guarded ===

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, stage: Arc<Stage>) -> Self {
        let deadline = Instant::now() + IDLE_TIMEOUT;
        Self { stream, stage, deadline, timer: Box::pin(sleep_until(deadline)), writing: None }
    }

    /// Fails after the deadline.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            if self.timer.is_elapsed() || self.timer.deadline() > self.deadline {
                self.timer.as_mut().reset(self.deadline);
            }
            ready!(self.timer.as_mut().poll(cx));
            if self.timer.deadline() >= self.deadline {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Fails a write that waits too long.
    fn guard_write<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.writing = None;
            return outcome;
        }
        let timer = self.writing.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if let Poll::Ready(outcome) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            if buf.filled().len() > before && matches!(self.stage.get(), IDLE | ANSWERED) {
                self.stage.set(HEADER);
                self.deadline = Instant::now() + HEADER_TIMEOUT;
            }
            return Poll::Ready(outcome);
        }
        match self.stage.get() {
            SERVING => return Poll::Pending,
            ANSWERED => {
                self.stage.set(IDLE);
                self.deadline = Instant::now() + IDLE_TIMEOUT;
            }
            _ => {}
        }
        self.poll_deadline(cx).map(Err)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.guard_write(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.guard_write(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.guard_write(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.guard_write(cx, outcome)
    }
}

#[cfg(test)]
mod tests;
