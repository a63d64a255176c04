//! What the environment sets.

use std::{
    env,
    str::FromStr,
    time::{Duration, SystemTime},
};

/// The seed that the faults are drawn from: a failed run tells its own.
pub(crate) const SEED: &str = "RATELIMIT_FAULT_SEED";
/// How many faults a round has.
const STEPS: &str = "RATELIMIT_FAULT_STEPS";
/// Rounds are begun for this many minutes, each with the seed after the one before; without, one is.
const MINUTES: &str = "RATELIMIT_FAULT_MINUTES";

pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) steps: u32,
    pub(crate) time: Option<Duration>,
}

impl Settings {
    pub(crate) fn read() -> Self {
        let seed = number(SEED).unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
            u64::from(now.subsec_nanos()) ^ now.as_secs()
        });
        println!("{SEED}={seed}");
        Self { seed, steps: number(STEPS).unwrap_or(100), time: number(MINUTES).map(Duration::from_mins) }
    }
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text}, which is no number")))
}
