//! Whether the program sees frames as they were on the wire: with their tags, and one by one.

use crate::network::{
    doctor::{
        Finding,
        facts::{Device, Policy},
    },
    interfaces::Mode,
};

pub(super) fn examine(device: &Device, policy: Option<&Policy>, devices: &[Device]) -> Vec<Finding> {
    [policy.and_then(|policy| tags(device, policy)), merged_natively(device), merged_before(device, devices)]
        .into_iter()
        .flatten()
        .collect()
}

/// Tags that the card takes off travel beside the frame, where XDP does not see them.
fn tags(device: &Device, policy: &Policy) -> Option<Finding> {
    const STRIPPING: &str = "rx-vlan-hw-parse";
    let Device { name, .. } = device;
    policy.wanted(name)?;
    if policy.vlan_rules.is_empty() || device.has(STRIPPING) != Some(true) {
        return None;
    }
    let rules = policy.vlan_rules.join("`, `");
    Some(
        Finding::problem("vlan_tags", name, "the card takes VLAN tags off before the program sees the frame")
            .why(format!("all frames look untagged to `{rules}`, and a rule for a VLAN never matches"))
            .remedy(format!("ethtool -K {name} rxvlan off")),
    )
}

/// In native mode drivers are to switch this off, or to refuse; not all of them do.
fn merged_natively(device: &Device) -> Option<Finding> {
    let Device { name, .. } = device;
    if device.own()?.mode != Mode::Native {
        return None;
    }
    let on = |feature| device.has(feature) == Some(true);
    let options: Vec<_> = [("rx-lro", "lro off"), ("rx-gro-hw", "rx-gro-hw off")]
        .into_iter()
        .filter_map(|(feature, option)| on(feature).then_some(option))
        .collect();
    (!options.is_empty()).then(|| {
        Finding::warning("merged_frames", name, "the card may merge frames before the program sees them")
            .why("what was several packets counts as one, so limits in packets let more through")
            .remedy(format!("ethtool -K {name} {}", options.join(" ")))
    })
}

/// In generic mode the kernel does not merge frames on the interface itself (`netif_elide_gro`), but takes
/// them as they come from the one beneath it.
fn merged_before(device: &Device, devices: &[Device]) -> Option<Finding> {
    let Device { name, kind, lower, .. } = device;
    if device.own()?.mode != Mode::Generic {
        return None;
    }
    let why = "what was several packets counts as one, so limits in packets let more through";
    match kind.as_str() {
        "veth" => {
            let peer = lower.as_deref().unwrap_or("PEER");
            Some(
                Finding::warning(
                    "merged_frames",
                    name,
                    "the other end of the pair may send unsegmented frames",
                )
                .why(why)
                .remedy(format!("at the other end: ethtool -K {peer} tso off gso off")),
            )
        }
        "vlan" | "macvlan" | "ipvlan" | "bond" | "bridge" => {
            let lower = lower.as_deref();
            let beneath = devices.iter().find(|device| Some(device.name.as_str()) == lower);
            if beneath.is_some_and(|beneath| beneath.has("rx-gro") == Some(false)) {
                return None;
            }
            let lower = lower.unwrap_or("MEMBER");
            Some(
                Finding::warning("merged_frames", name, "the interface beneath merges frames (GRO)")
                    .why(why)
                    .remedy(format!("protect {lower} instead, or: ethtool -K {lower} gro off")),
            )
        }
        _ => None,
    }
}
