//! Waiting for the person at the terminal while a policy is on trial.

use std::{
    io::{self, BufRead},
    thread,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    time::sleep,
};

/// What the person says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Enter, or yes.
    Keep,
    /// Any other words, Ctrl-C, or the end of the input.
    GoBack,
    /// Nothing in time.
    None,
}

/// Forgets what was typed so far: before the question, it is no answer to it.
pub(super) fn forget_typed() {
    // Where that fails, a line that was typed early counts.
    let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
}

/// Waits for an answer, Ctrl-C or the end of the time, whichever comes first. A terminal that goes away kills this
/// process as it does others, and the policy before comes back at the deadline.
pub(super) fn wait(time: Duration) -> io::Result<Decision> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (tell, told) = oneshot::channel();
        // Reading cannot be given up: the thread ends with the process.
        thread::spawn(move || tell.send(answer(io::stdin().lock())));
        Ok(tokio::select! {
            decision = told => decision.unwrap_or(Decision::None),
            _ = interrupt.recv() => Decision::GoBack,
            () = sleep(time) => Decision::None,
        })
    })
}

/// An empty line keeps the policy, and so does a yes. Other words do not, nor an input that ends before the line
/// does, or fails.
fn answer(mut input: impl BufRead) -> Decision {
    let mut line = Vec::new();
    let read = input.read_until(b'\n', &mut line);
    let words = line.trim_ascii().to_ascii_lowercase();
    let keeps = line.ends_with(b"\n") && matches!(&*words, b"" | b"y" | b"yes");
    if read.is_ok() && keeps { Decision::Keep } else { Decision::GoBack }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_enter_or_a_yes_keeps_the_policy() {
        for kept in ["\n", "y\n", " Yes \n"] {
            assert_eq!(answer(kept.as_bytes()), Decision::Keep, "{kept:?}");
        }
        for other in ["n\n", "no\n", "rollback\n", "yes, no\n"] {
            assert_eq!(answer(other.as_bytes()), Decision::GoBack, "{other:?}");
        }
        assert_eq!(answer(&b""[..]), Decision::GoBack);
        assert_eq!(answer(&b"y"[..]), Decision::GoBack);
    }
}
