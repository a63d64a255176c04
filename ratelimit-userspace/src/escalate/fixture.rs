//! What tests begin with.

use std::time::Duration;

use crate::config::http::Escalate;

/// Twenty a minute block for 10 minutes, then twice as long each time.
pub(super) fn terms() -> Escalate {
    Escalate {
        after: 20,
        within: Duration::from_mins(1),
        block: Duration::from_mins(10),
        factor: 2,
        max: Duration::from_hours(24),
        shed: None,
        identities: 2,
        line: 1,
        column: 1,
    }
}
