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
    /// Enter.
    Keep,
    /// Ctrl-C, or the end of the input.
    GoBack,
    /// Nothing in time.
    None,
}

/// Waits for Enter, Ctrl-C or the end of the time, whichever comes first. A terminal that goes away kills this
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

/// A line keeps the policy, whatever is in it; an input that ends before or fails does not.
fn answer(mut input: impl BufRead) -> Decision {
    let mut line = Vec::new();
    let read = input.read_until(b'\n', &mut line);
    if read.is_ok() && line.ends_with(b"\n") { Decision::Keep } else { Decision::GoBack }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_keeps_the_policy() {
        assert_eq!(answer(&b"\n"[..]), Decision::Keep);
        assert_eq!(answer(&b"yes\n"[..]), Decision::Keep);
        assert_eq!(answer(&b""[..]), Decision::GoBack);
        assert_eq!(answer(&b"y"[..]), Decision::GoBack);
    }
}
