//! What happens to a daemon, drawn at random.

use std::time::Duration;

/// `SplitMix64`: what is drawn depends on the seed alone, on every machine.
struct Random(u64);

/// How a daemon ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// SIGTERM.
    Asked,
    /// SIGKILL.
    Killed,
}

/// A moment while something goes on, in thousandths of the time that it takes. Beyond 1000, it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(u32);

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The daemon ends and starts again.
    Restart(End),
    /// The daemon ends, and one start after the other is killed.
    KilledStarts(End, Vec<Moment>),
    /// The daemon reads files that have not changed.
    Reload,
    /// The list of denied sources gains or loses some.
    ChangedList,
    /// The daemon is killed while it puts a changed list in force.
    KilledReload(Moment),
    /// A broken rules file is put in place of the good one, for a while.
    BrokenFile,
    /// The daemon ends, and a start with a broken rules file is refused.
    BrokenStart(End),
    /// The other build takes over, once or, killed on its way, at the second try: an upgrade from the first,
    /// a rollback from the second.
    OtherBuild(End, Option<Moment>),
    /// A policy with one more rule, before all others, is put in force on trial.
    Trial(TrialEnd),
}

/// How a trial ends. In each case the policy before is in force again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrialEnd {
    /// It is rolled back.
    RolledBack,
    /// It is confirmed, and then the rules file is put back.
    Confirmed,
    /// The daemon is killed, and started again.
    Killed,
}

/// The faults of a run: kinds in an order drawn at random, none of which comes again before all others have.
pub(crate) struct Faults {
    random: Random,
    /// The kinds still to come in this turn.
    kinds: Vec<u32>,
}

// === impl Random ===

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One of 0 to `bound` - 1, near enough to evenly.
    fn below(&mut self, bound: u32) -> u32 {
        let bound = u64::from(bound);
        u32::try_from(((self.next() >> 32) * bound) >> 32).expect("below a bound of 32 bits")
    }

    fn end(&mut self) -> End {
        if self.below(2) == 0 { End::Asked } else { End::Killed }
    }

    fn moment(&mut self) -> Moment {
        Moment(self.below(1100))
    }
}

// === impl Moment ===

impl Moment {
    /// How long to wait for it.
    pub(crate) fn of(self, whole: Duration) -> Duration {
        whole * self.0 / 1000
    }
}

// === impl Faults ===

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), kinds: Vec::new() }
    }

    pub(crate) fn next(&mut self) -> Fault {
        const KINDS: u32 = 12;

        if self.kinds.is_empty() {
            self.kinds.extend(0..KINDS);
        }
        let place = self.random.below(u32::try_from(self.kinds.len()).expect("a few"));
        let kind = self.kinds.swap_remove(place as usize);
        let random = &mut self.random;
        match kind {
            0 => Fault::Restart(random.end()),
            1 | 2 => {
                let end = random.end();
                let starts = 1 + random.below(3);
                Fault::KilledStarts(end, (0..starts).map(|_| random.moment()).collect())
            }
            3 => Fault::Reload,
            4 => Fault::ChangedList,
            5 => Fault::KilledReload(random.moment()),
            6 => Fault::BrokenFile,
            7 => Fault::BrokenStart(random.end()),
            8 | 9 => {
                let end = random.end();
                let killed = random.below(2) == 0;
                Fault::OtherBuild(end, killed.then(|| random.moment()))
            }
            _ => Fault::Trial(match random.below(3) {
                0 => TrialEnd::RolledBack,
                1 => TrialEnd::Confirmed,
                _ => TrialEnd::Killed,
            }),
        }
    }
}
