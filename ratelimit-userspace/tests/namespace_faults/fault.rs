//! What happens to a daemon, drawn at random.

use std::time::Duration;

/// `SplitMix64`: what is drawn depends on the seed alone, on every machine.
pub(crate) struct Random(u64);

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
}

// === impl Random ===

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
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

// === impl Fault ===

impl Fault {
    pub(crate) fn draw(random: &mut Random, other_build: bool) -> Self {
        match random.below(if other_build { 10 } else { 8 }) {
            0 => Self::Restart(random.end()),
            1 | 2 => {
                let end = random.end();
                let starts = 1 + random.below(3);
                Self::KilledStarts(end, (0..starts).map(|_| random.moment()).collect())
            }
            3 => Self::Reload,
            4 => Self::ChangedList,
            5 => Self::KilledReload(random.moment()),
            6 => Self::BrokenFile,
            7 => Self::BrokenStart(random.end()),
            _ => {
                let end = random.end();
                let killed = random.below(2) == 0;
                Self::OtherBuild(end, killed.then(|| random.moment()))
            }
        }
    }
}
