//! Whoever wants to know of clients that requests are denied to, and who they are. What becomes of them is nothing to the limiter.

use std::{fmt, net::IpAddr};

use super::{clock::Now, rules::Rule};

/// Hears of requests as they happen, on their way: nothing here may wait.
pub trait Witness: fmt::Debug + Send + Sync {
    /// A rule that escalates denied a request to a client whose own packets arrive at this host.
    fn denied(&self, client: IpAddr, rule: &Rule, now: Now);

    /// An identity that is known uses this address. Told only where rules escalate.
    fn identified(&self, client: IpAddr, identity: u64, now: Now);
}
