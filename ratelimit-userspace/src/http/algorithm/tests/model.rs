//! Every algorithm against a naive model: all charges in a list, and exact fractions.

use proptest::prelude::*;

use super::*;

/// What was charged, and the little that cannot be told from it.
struct Model {
    limit: Limit,
    window: Nanos,
    /// What clients are told, and what is admitted.
    nominal: u64,
    capacity: u64,
    /// Windows: charges that were not refunded, oldest first.
    records: Vec<(Nanos, u64)>,
    /// Buckets: debt in units times nanoseconds of the window, when it was that, and the next refill.
    debt: u128,
    updated: Nanos,
    next_refill: Nanos,
    /// Where windows begin with `align: first`.
    anchor: Option<Nanos>,
}

// === impl Model ===

impl Model {
    fn new(limit: Limit) -> Self {
        let Window::Fixed(window) = limit.window else { panic!("no calendar here") };
        let nominal = match limit.algorithm {
            _ if limit.units == 0 => 0,
            Kinds::TokenBucket { burst, .. } | Kinds::LeakyBucket { burst, .. } => burst,
            _ => limit.units,
        };
        let capacity = nominal + nominal * u64::from(limit.soft_margin_permille) / 1_000;
        Self {
            window: window.get(),
            nominal,
            capacity,
            records: vec![],
            debt: 0,
            updated: 0,
            next_refill: 0,
            anchor: None,
            limit,
        }
    }

    fn is_bucket(&self) -> bool {
        matches!(self.limit.algorithm, Kinds::TokenBucket { .. } | Kinds::LeakyBucket { .. })
    }

    /// The length of that after which something is forgotten.
    fn step(&self) -> Nanos {
        match self.limit.algorithm {
            Kinds::Segments { segments } => self.window / u64::from(segments),
            _ => self.window,
        }
    }

    /// When the current step began.
    fn begun(&self, now: Nanos) -> Nanos {
        let anchor = if self.limit.align == Align::First { self.anchor.unwrap_or(now) } else { 0 };
        now - (now - anchor) % self.step()
    }

    /// Lets time pass, and forgets everything if nothing counts any more.
    fn advance(&mut self, now: Nanos) {
        if let Kinds::TokenBucket { interval: true, .. } = self.limit.algorithm {
            while self.debt > 0 && self.next_refill <= now {
                let refill = u128::from(self.limit.units) * u128::from(self.window);
                self.debt = self.debt.saturating_sub(refill);
                self.next_refill += self.window;
            }
        } else {
            let drained = u128::from(now - self.updated) * u128::from(self.limit.units);
            self.debt = self.debt.saturating_sub(drained);
        }
        self.updated = now;
        let oldest = match self.limit.algorithm {
            Kinds::FixedWindow => self.begun(now),
            Kinds::SlidingWindow { .. } => self.begun(now).saturating_sub(self.window),
            Kinds::Segments { .. } => (self.begun(now) + self.step()).saturating_sub(self.window),
            _ => (now + 1).saturating_sub(self.window),
        };
        self.records.retain(|&(at, _)| at >= oldest);
        if self.records.is_empty() && self.debt == 0 {
            self.anchor = None;
        }
    }

    fn sum(&self, from: Nanos, to: Nanos) -> u128 {
        self.records.iter().filter(|&&(at, _)| from <= at && at < to).map(|&(_, n)| u128::from(n)).sum()
    }

    /// Units that count, times nanoseconds of the window.
    fn used(&self, now: Nanos) -> u128 {
        let window = u128::from(self.window);
        if self.is_bucket() {
            return self.debt;
        }
        let begun = self.begun(now);
        if let Kinds::SlidingWindow { .. } = self.limit.algorithm {
            let previous = self.sum(begun.saturating_sub(self.window), begun);
            let left = u128::from(begun + self.window - now);
            return previous * left + self.sum(begun, now + 1) * window;
        }
        self.sum(0, now + 1) * window
    }

    /// The same in whole units, as the algorithm rounds.
    fn used_rounded(&self, now: Nanos) -> u128 {
        let window = u128::from(self.window);
        match self.limit.algorithm {
            Kinds::SlidingWindow { round_up: false } => self.used(now) / window,
            _ => self.used(now).div_ceil(window),
        }
    }

    fn fits(&self, now: Nanos, cost: u64, ceiling: u64) -> bool {
        let window = u128::from(self.window);
        let used = match self.limit.algorithm {
            Kinds::SlidingWindow { .. } => self.used_rounded(now) * window,
            _ => self.used(now),
        };
        used + u128::from(cost) * window <= u128::from(ceiling) * window
    }

    /// The delay and whether the margin was used, if it is admitted.
    fn decide(&self, now: Nanos, cost: i64) -> Option<(Nanos, bool)> {
        let Ok(cost) = u64::try_from(cost) else { return Some((0, false)) };
        if !self.fits(now, cost, self.capacity) {
            return None;
        }
        let mut delay = 0;
        if let Kinds::LeakyBucket { max_delay: Some(max_delay), .. } = self.limit.algorithm
            && cost > 0
        {
            delay = self.debt.div_ceil(u128::from(self.limit.units)).try_into().unwrap();
            if delay > max_delay {
                return None;
            }
        }
        Some((delay, !self.fits(now, cost, self.nominal)))
    }

    fn charge(&mut self, now: Nanos, cost: i64) {
        let (units, window) = (cost.unsigned_abs(), u128::from(self.window));
        if self.is_bucket() {
            let was_whole = self.debt == 0;
            let change = u128::from(units) * window;
            self.debt = if cost < 0 { self.debt.saturating_sub(change) } else { self.debt + change };
            self.debt = self.debt.min(u128::from(self.capacity) * window);
            if was_whole {
                self.anchor = Some(now);
                self.next_refill = self.begun(now) + self.window;
            }
        } else if cost < 0 {
            let mut left = units;
            while let Some((_, newest)) = self.records.last_mut()
                && left > 0
            {
                let taken = left.min(*newest);
                *newest -= taken;
                left -= taken;
                if *newest == 0 {
                    self.records.pop();
                }
            }
        } else {
            let added = units.min(self.capacity);
            // The newest displaces the oldest: first of the window itself, then of what is carried over.
            let sliding = matches!(self.limit.algorithm, Kinds::SlidingWindow { .. });
            let from = if sliding { self.begun(now) } else { 0 };
            while self.sum(from, now + 1) > u128::from(self.capacity - added) {
                self.records.iter_mut().find(|&&mut (at, n)| at >= from && n > 0).unwrap().1 -= 1;
            }
            if added > 0 {
                self.anchor.get_or_insert(now);
                self.records.push((now, added));
            }
            while self.used_rounded(now) > u128::from(self.capacity) {
                self.records.iter_mut().find(|(_, n)| *n > 0).unwrap().1 -= 1;
            }
            self.records.retain(|&(_, n)| n > 0);
        }
        self.advance(now);
    }

    fn standing(&self, now: Nanos) -> Standing {
        let window = u128::from(self.window);
        let free = match self.limit.algorithm {
            Kinds::SlidingWindow { .. } => u128::from(self.nominal).saturating_sub(self.used_rounded(now)),
            _ => (u128::from(self.nominal) * window).saturating_sub(self.used(now)) / window,
        };
        let units = u128::from(self.limit.units.max(1));
        let whole = self.records.is_empty() && self.debt == 0;
        let reset = match self.limit.algorithm {
            Kinds::TokenBucket { .. } | Kinds::LeakyBucket { .. } | Kinds::SlidingLog if whole => 0,
            _ if whole && self.limit.align == Align::First => 0,
            Kinds::TokenBucket { interval: true, .. } => {
                let refills = self.debt.div_ceil(units * window);
                self.next_refill - now + (u64::try_from(refills).unwrap() - 1) * self.window
            }
            Kinds::TokenBucket { .. } | Kinds::LeakyBucket { .. } => {
                self.debt.div_ceil(units).try_into().unwrap()
            }
            Kinds::SlidingLog => self.records.last().unwrap().0 + self.window - now,
            _ => self.begun(now) + self.step() - now,
        };
        Standing { limit: self.nominal, remaining: free.try_into().unwrap(), reset }
    }
}

/// A limit of any algorithm and the steps to take under it.
pub(super) fn limits() -> impl Strategy<Value = Limit> {
    (0_usize..9, 0_u64..12, 1_u64..40, 1_u64..15, any::<bool>(), any::<bool>(), 0_u32..3, 0_u64..60).prop_map(
        |(kind, units, window, burst, first, count_denied, margin, max_delay)| {
            let algorithm = match all(units)[kind] {
                Kinds::TokenBucket { interval, .. } => Kinds::TokenBucket { burst, interval },
                Kinds::LeakyBucket { max_delay: None, .. } => leaky_bucket(burst),
                Kinds::LeakyBucket { .. } => Kinds::LeakyBucket { burst, max_delay: Some(max_delay) },
                other => other,
            };
            Limit {
                align: if first { Align::First } else { Align::Epoch },
                count_denied,
                soft_margin_permille: margin * 250,
                // Segments need windows that divide by five.
                ..limit(units, window * 5, algorithm)
            }
        },
    )
}

pub(super) fn steps() -> impl Strategy<Value = Vec<(Nanos, i64)>> {
    let wait = prop_oneof![4 => Just(0), 6 => 0_u64..30, 3 => 0_u64..250, 1 => 0_u64..3_000];
    let cost = prop_oneof![8 => 1_i64..4, 2 => Just(0), 2 => -4_i64..0, 1 => 4_i64..30];
    prop::collection::vec((wait, cost), 1..50)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn decides_as_the_naive_model(limit in limits(), start in 0_u64..5_000, steps in steps()) {
        let mut counter = Counter::new(limit.clone());
        let mut model = Model::new(limit.clone());
        let mut now = start;
        for (wait, cost) in steps {
            now += wait;
            model.advance(now);
            let expected = model.decide(now, cost);
            if expected.is_some() || limit.count_denied {
                model.charge(now, cost);
            }
            let seen = match counter.ask(now, cost) {
                Outcome::Admit { delay, soft_over } => Some((delay, soft_over)),
                Outcome::Refuse { wait } => {
                    prop_assert_eq!(wait.is_none(), u64::try_from(cost).unwrap() > model.capacity);
                    None
                }
            };
            prop_assert_eq!(seen, expected, "{} at {}", cost, now);
            prop_assert_eq!(counter.standing(now), model.standing(now), "after {} at {}", cost, now);
            let used = model.used(now).div_ceil(u128::from(model.window));
            prop_assert_eq!(u128::from(counter.used(now)), used, "after {} at {}", cost, now);
        }
    }
}
