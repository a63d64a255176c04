//! The interfaces that the policy names, or all of them if there is no policy.

mod frames;
mod mode;
mod place;
mod queues;

#[cfg(test)]
mod tests;

use super::{
    Finding,
    facts::{Device, Origin, Policy},
};

pub(super) fn examine(devices: &[Device], policy: Option<&Policy>, cpus: usize) -> Vec<Finding> {
    let mut findings = policy.map(missing).unwrap_or_default();
    for device in devices.iter().filter(|device| concerns(device, policy)) {
        findings.extend(place::examine(device, policy));
        findings.extend(mode::examine(device, policy));
        findings.extend(frames::examine(device, policy, devices));
        findings.extend(queues::examine(device, cpus));
    }
    findings
}

/// The loopback interface is meant only by its name: nothing there comes from outside.
fn concerns(device: &Device, policy: Option<&Policy>) -> bool {
    match policy {
        Some(policy) => policy.wanted(&device.name).is_some() || !device.programs.is_empty(),
        None => device.name != "lo",
    }
}

fn missing(policy: &Policy) -> Vec<Finding> {
    let Policy { origin, without_interface, .. } = policy;
    let finding = |name: &String| {
        if name.contains(['*', '?', '[']) {
            return Finding::note("interface", name, "no interface matches this pattern yet")
                .why("the daemon attaches to one as soon as it comes");
        }
        let finding = match origin {
            Origin::InForce => Finding::warning("interface", name, "there is no such interface"),
            Origin::File(_) => Finding::problem("interface", name, "there is no such interface"),
        };
        finding.why("the rules file names it").remedy("ip link shows those that there are")
    };
    without_interface.iter().map(finding).collect()
}
