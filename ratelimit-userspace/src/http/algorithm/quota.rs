//! How much a limit admits.

/// A limit and the margin above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    /// What clients are told.
    pub(super) limit: u64,
    /// What is admitted: the limit and its soft margin.
    pub(super) capacity: u64,
}

// === impl Quota ===

impl Quota {
    /// `limit` and so many thousandths of it, rounded down.
    pub(super) fn new(limit: u64, margin_permille: u32) -> Self {
        let margin = u128::from(limit) * u128::from(margin_permille) / 1_000;
        Self { limit, capacity: limit.saturating_add(narrow(margin)) }
    }

    /// What is used after a charge: neither above the capacity nor below nothing.
    pub(super) fn add(&self, used: u64, cost: i64) -> u64 {
        used.saturating_add_signed(cost).min(self.capacity)
    }
}

/// As a word, the largest if it does not fit.
pub(super) fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// `value / by`, rounded down and at most a word. Short where both are words, which is the common case.
pub(super) fn divide(value: u128, by: u64) -> u64 {
    let by = by.max(1);
    match u64::try_from(value) {
        Ok(value) => value / by,
        Err(_) => narrow(value / u128::from(by)),
    }
}

/// [`divide`], rounded up.
pub(super) fn divide_up(value: u128, by: u64) -> u64 {
    let by = by.max(1);
    match u64::try_from(value) {
        Ok(value) => value.div_ceil(by),
        Err(_) => narrow(value.div_ceil(u128::from(by))),
    }
}
