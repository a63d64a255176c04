//! Children that do not outlive their guard.

use std::{
    io::Write as _,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::Cleanup;

const POLL: Duration = Duration::from_millis(10);

/// A running child, killed by its own process id when the guard goes.
#[derive(Debug)]
pub struct Process {
    child: Arc<Mutex<Option<Child>>>,
    id: u32,
    _cleanup: Cleanup,
}

// === impl Process ===

impl Process {
    /// Starts the command.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let slot = Arc::new(Mutex::new(None));
        // Locked from before the clean-up is known until the child stands in the slot: an interrupt in
        // between waits for it.
        let mut guard = lock(&slot);
        let cleanup = Cleanup::new({
            let slot = Arc::clone(&slot);
            move || {
                if let Some(mut child) = lock(&slot).take() {
                    drop(child.kill());
                    drop(child.wait());
                }
            }
        });
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                drop(guard);
                return Err(error).with_context(|| format!("failed to start {command:?}"));
            }
        };
        let id = child.id();
        *guard = Some(child);
        drop(guard);
        Ok(Self { child: slot, id, _cleanup: cleanup })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The child's standard output, once, if the command piped it.
    pub fn take_stdout(&self) -> Option<ChildStdout> {
        lock(&self.child).as_mut()?.stdout.take()
    }

    /// The child's standard error, once, if the command piped it.
    pub fn take_stderr(&self) -> Option<ChildStderr> {
        lock(&self.child).as_mut()?.stderr.take()
    }

    /// How it ended, if it has.
    pub fn try_wait(&self) -> Result<Option<ExitStatus>> {
        let mut guard = lock(&self.child);
        let child = guard.as_mut().context("the process was cleaned up")?;
        child.try_wait().with_context(|| format!("failed to wait for process {}", self.id))
    }

    /// Waits at most `patience` for its end.
    pub fn wait(&self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("process {} still runs after {patience:?}", self.id);
            }
            thread::sleep(POLL);
        }
    }

    /// Sends a signal; nothing happens when the process has been waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if self.try_wait()?.is_some() {
            return Ok(());
        }
        kill(Pid::from_raw(self.id.cast_signed()), signal)
            .with_context(|| format!("failed to send {signal} to process {}", self.id))
    }

    /// Asks it to end (SIGTERM) and waits at most `patience`.
    pub fn terminate(&self, patience: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.wait(patience)
    }
}

fn lock(slot: &Mutex<Option<Child>>) -> MutexGuard<'_, Option<Child>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the command to its end and returns what it wrote to stdout; an error holds the whole command
/// and what it wrote to stderr.
pub fn capture(command: &mut Command) -> Result<String> {
    feed(command, "")
}

/// Like [`capture`], with something to read on stdin.
pub(super) fn feed(command: &mut Command, input: &str) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start {command:?}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input says itself why it failed.
        drop(stdin.write_all(input.as_bytes()));
    }
    let output = child.wait_with_output().with_context(|| format!("failed to wait for {command:?}"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("failed to run {command:?}: {}: {}", output.status, reason.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
