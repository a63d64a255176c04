//! What stands in the way of limiting packets on this host, and what to do about it.
//!
//! [`look`] only looks and says what it could not see; [`examine`] is pure and judges. Nothing is changed.

mod devices;
pub mod facts;
mod host;
pub mod look;
mod pins;

#[cfg(test)]
mod tests;

use serde::Serialize;

use self::facts::Facts;

/// One thing that was looked at, and what it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was checked: a name that stays the same.
    pub check: &'static str,
    /// An interface, or what else it is about.
    pub subject: String,
    /// What was found.
    pub what: String,
    /// Why it matters.
    pub why: Option<String>,
    /// What to do, with the command.
    pub remedy: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// It works, but worse or otherwise than may be meant.
    Warning,
    /// It does not work.
    Problem,
}

/// All findings, in the order in which a person reads them: the host, what is pinned, each interface.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    let Facts { host, pins, policy, devices, unseen } = facts;
    let mut findings = host::examine(host, policy.as_ref(), pins);
    findings.extend(pins::examine(pins));
    findings.extend(devices::examine(devices, policy.as_ref(), host.cpus));
    findings.extend(unseen.iter().map(|facts::Unseen { what, why }| {
        Finding::new(Severity::Note, "unseen", what, "could not be looked at").why(why)
    }));
    findings
}

// === impl Finding ===

impl Finding {
    fn new(
        severity: Severity,
        check: &'static str,
        subject: impl Into<String>,
        what: impl Into<String>,
    ) -> Self {
        Self { severity, check, subject: subject.into(), what: what.into(), why: None, remedy: None }
    }

    fn ok(check: &'static str, subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, subject, what)
    }

    fn note(check: &'static str, subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(Severity::Note, check, subject, what)
    }

    fn warning(check: &'static str, subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(Severity::Warning, check, subject, what)
    }

    fn problem(check: &'static str, subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(Severity::Problem, check, subject, what)
    }

    fn why(self, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..self }
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}
