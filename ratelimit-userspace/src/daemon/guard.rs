//! The guard of a trial: a process of its own that goes back to the policy before when the time is over and
//! the daemon did not, because it hangs or is no more.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tracing::{error, info, warn};

use super::Settings;
use crate::network::{
    description::Description,
    links::Applied,
    state::StateDir,
    trial::{self, RestoreError},
};

/// The daemon has this long after the deadline to go back itself.
const GRACE: Duration = Duration::from_secs(3);

/// What a guard did.
#[derive(Debug)]
pub enum Outcome {
    /// The trial had ended when its time was over.
    Ended,
    /// It put the policy before back.
    Restored(Applied),
}

/// Starts a guard over the trial of a program. Without one the daemon alone keeps the deadline.
pub(super) fn spawn(settings: &Settings, program_id: u32, time: Duration) {
    let child = Command::new("/proc/self/exe")
        .arg("guard")
        .arg("--pin-dir")
        .arg(&settings.pin_dir)
        .arg("--program")
        .arg(program_id.to_string())
        .arg("--seconds")
        .arg(time.as_secs().to_string())
        // Standard error stays the daemon's: what the guard does belongs into the same log.
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    match child {
        // A thread of its own waits for it, or it would stay as a zombie.
        Ok(mut child) => drop(thread::spawn(move || child.wait())),
        Err(error) => warn!("no guard watches over the trial, so it ends only if the daemon lives: {error}"),
    }
}

/// Waits until the trial's time is over and goes back if that is still to be done.
pub fn run(pin_dir: &Path, program_id: u32, time: Duration) -> Result<Outcome, RestoreError> {
    // A session of its own: neither a terminal that closes nor a signal to the daemon's group ends it.
    if let Err(error) = rustix::process::setsid() {
        warn!("the guard shares the session of its parent: {}", io::Error::from(error));
    }
    let state = StateDir::new(PathBuf::from(pin_dir));
    let over = Instant::now() + time + GRACE;
    // In steps, so that a trial that was confirmed does not leave a process behind for an hour.
    while Instant::now() < over {
        if !is_on(&state, program_id) {
            return Ok(Outcome::Ended);
        }
        thread::sleep(Duration::from_secs(1).min(over.saturating_duration_since(Instant::now())));
    }
    if !is_on(&state, program_id) {
        return Ok(Outcome::Ended);
    }
    // The lock is of no use here: a daemon that hangs holds it. Every step is atomic.
    let applied = trial::restore(&state).inspect_err(|error| error!("failed to end the trial: {error}"))?;
    info!("the trial's time is over and no daemon ended it: the policy before is in force again");
    Ok(Outcome::Restored(applied))
}

/// Whether that program is the one on trial.
fn is_on(state: &StateDir, program_id: u32) -> bool {
    let runs = || Description::read(&state.state()).ok().flatten().map(|description| description.program_id);
    trial::is_on(state) && runs() == Some(program_id)
}
