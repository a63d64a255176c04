//! Whether an interface is a good place to limit packets at: its kind, and what lies above and below it.

use crate::network::doctor::{
    Finding,
    facts::{Device, Policy},
};

pub(super) fn examine(device: &Device, policy: Option<&Policy>) -> Vec<Finding> {
    let wanted = policy.is_some_and(|policy| policy.wanted(&device.name).is_some());
    let mut findings: Vec<_> =
        [ethernet(device, wanted), kind(device), upper(device, policy)].into_iter().flatten().collect();
    if wanted && !device.up {
        findings.push(
            Finding::note("link", &device.name, "it is switched off")
                .remedy(format!("ip link set dev {} up", device.name)),
        );
    }
    findings
}

fn ethernet(device: &Device, wanted: bool) -> Option<Finding> {
    let what = "its frames have no Ethernet header";
    let why = "the program reads Ethernet frames: here it would find no address, and let everything pass";
    (device.no_ethernet && wanted).then(|| {
        Finding::problem("link_layer", &device.name, what)
            .why(why)
            .remedy("protect the interface that the frames of the tunnel come in at")
    })
}

/// What to know of stacked interfaces.
fn kind(device: &Device) -> Option<Finding> {
    let Device { name, kind, lower, .. } = device;
    let beneath = lower.as_deref().unwrap_or("the interface beneath");
    let note = |what: &str, why: String| Some(Finding::note("kind", name, what).why(why));
    match kind.as_str() {
        "vlan" => note(
            "a VLAN interface: its frames come through another one, without their tag",
            format!(
                "{beneath} sees them first and natively; rules can tell VLANs apart there (`match: vlan`)"
            ),
        ),
        "bond" => note(
            "a bond: the program runs on each of its members, also on those that come later",
            "name only the bond or only its members, not both".to_owned(),
        ),
        "bridge" => note(
            "a bridge: only what this host itself receives is seen here, not what is forwarded",
            "name the bridge's ports to limit everything".to_owned(),
        ),
        "macvlan" | "macvtap" | "ipvlan" => note(
            "a share of another interface",
            format!("{beneath} sees the frames of all shares first and natively"),
        ),
        _ => None,
    }
}

fn upper(device: &Device, policy: Option<&Policy>) -> Option<Finding> {
    let policy = policy.filter(|policy| policy.wanted(&device.name).is_some())?;
    let (upper, kind) = device.upper.as_ref()?;
    let both = policy.wanted(upper).is_some();
    match kind.as_str() {
        "bond" | "team" if both => Some(
            Finding::problem(
                "members",
                &device.name,
                format!("the rules file names it and its {kind} {upper}"),
            )
            .why("the kernel refuses a program on both")
            .remedy(format!("leave {} out of `interfaces`: {upper} covers it", device.name)),
        ),
        "bond" | "team" => Some(
            Finding::note("members", &device.name, format!("a member of the {kind} {upper}"))
                .why(format!(
                    "frames through other members are not limited, and {upper} takes no new member \
                              that has a program"
                ))
                .remedy(format!("name {upper} instead, or all its members")),
        ),
        "bridge" => Some(
            Finding::note("members", &device.name, format!("a port of the bridge {upper}"))
                .why("what is forwarded to other ports, such as to guests, is limited as well"),
        ),
        _ => None,
    }
}
