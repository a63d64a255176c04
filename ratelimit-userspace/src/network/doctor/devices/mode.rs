//! Where the program runs, or would run: in the driver, or behind it, and why not in the driver.

use crate::{
    config::policy::AttachMode,
    network::{
        doctor::{
            Finding, Severity,
            facts::{Device, Origin, Policy, Program, XdpFeatures},
        },
        interfaces::Mode,
    },
};

const CHECK: &str = "xdp_mode";
/// Why generic mode is worse.
const DEARER: &str = "in generic mode the kernel has allocated a buffer for every packet before it is shed, \
                      which costs several times more";
/// The largest MTU that drivers take which need a frame in one page of 4 KiB.
const ONE_PAGE_MTU: u32 = 3498;

/// Why native mode is refused, or may be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Obstacle {
    why: String,
    remedy: Option<String>,
}

pub(super) fn examine(device: &Device, policy: Option<&Policy>) -> Vec<Finding> {
    let name = &device.name;
    let wanted = policy.and_then(|policy| policy.wanted(name));
    let mut findings: Vec<_> = foreign(device, wanted).into_iter().collect();
    if let Some(own) = device.own() {
        findings.push(attached(device, own, wanted));
        return findings;
    }
    let unknown = device.programs.iter().any(|program| program.ours.is_none());
    match (policy.map(|policy| &policy.origin), wanted) {
        _ if device.foreign().is_some() || unknown => {}
        (Some(Origin::InForce), Some(_)) => findings.push(
            Finding::problem("attached", name, "the policy in force names it, but is not attached to it")
                .why("its packets are not limited")
                .remedy("ratelimit reload; the daemon's log says what it refused"),
        ),
        (_, Some(wanted)) => findings.push(predicted(device, wanted)),
        (Some(_), None) => {}
        // Nobody asks for it yet.
        (None, None) => {
            let finding = predicted(device, AttachMode::Auto);
            findings.push(Finding { severity: finding.severity.min(Severity::Note), ..finding });
        }
    }
    findings
}

/// A program of somebody else.
fn foreign(device: &Device, wanted: Option<AttachMode>) -> Option<Finding> {
    let Program { id, name, mode, .. } = device.foreign()?;
    let program = name.as_ref().map_or_else(|| format!("id {id}"), |name| format!("`{name}`, id {id}"));
    let what = format!("another XDP program is attached ({program}, {mode})");
    let flag = match mode {
        Mode::Native => "xdpdrv",
        Mode::Generic => "xdpgeneric",
        Mode::Offloaded => "xdpoffload",
    };
    Some(if wanted.is_some() {
        Finding::problem("foreign_program", &device.name, what)
            .why("an interface runs one program in one mode, and a foreign one is never replaced")
            .remedy(format!(
                "stop what attached it, or: ip link set dev {} {flag} off; to run both: pin it and name it in \
                 `network.next`",
                device.name
            ))
    } else {
        Finding::note("foreign_program", &device.name, what)
    })
}

fn attached(device: &Device, own: &Program, wanted: Option<AttachMode>) -> Finding {
    let name = &device.name;
    match own.mode {
        Mode::Native => Finding::ok(CHECK, name, format!("native{}", in_driver(device))),
        Mode::Offloaded => Finding::ok(CHECK, name, "offloaded to the card"),
        Mode::Generic if wanted == Some(AttachMode::Generic) => {
            Finding::note(CHECK, name, "generic, as the rules file says").why(DEARER)
        }
        Mode::Generic => {
            let obstacles = obstacles(device);
            let why = reasons(&obstacles).map_or_else(
                || "generic; nothing stands in the way of native mode any more".to_owned(),
                |reasons| format!("generic, not native: {reasons}"),
            );
            let remedy = obstacles.into_iter().find_map(|obstacle| obstacle.remedy).map_or_else(
                || "ratelimit detach, then start the daemon: it tries native mode first".to_owned(),
                |remedy| format!("{remedy}; then ratelimit detach, and start the daemon"),
            );
            let finding = Finding::warning(CHECK, name, why).why(DEARER);
            if can_be_native(device) { finding.remedy(remedy) } else { finding }
        }
    }
}

fn predicted(device: &Device, wanted: AttachMode) -> Finding {
    let name = &device.name;
    let obstacles = obstacles(device);
    match (reasons(&obstacles), wanted) {
        (_, AttachMode::Generic) => {
            Finding::note(CHECK, name, "would run in generic mode, as the rules file says").why(DEARER)
        }
        (None, _) => {
            let sure = if device.xdp.is_some() { "" } else { ", if the driver can" };
            Finding::ok(CHECK, name, format!("would run in native mode{sure}{}", in_driver(device)))
        }
        (Some(reasons), wanted) => {
            let remedy = obstacles.into_iter().find_map(|obstacle| obstacle.remedy);
            let finding = if wanted == AttachMode::Native {
                Finding::problem(CHECK, name, format!("would be refused: {reasons}"))
                    .why("the rules file insists on native mode")
            } else {
                Finding::warning(CHECK, name, format!("would fall back to generic mode: {reasons}"))
                    .why(DEARER)
            };
            match remedy {
                Some(remedy) => finding.remedy(remedy),
                None => finding,
            }
        }
    }
}

fn in_driver(device: &Device) -> String {
    device.driver.as_ref().map(|driver| format!(" (driver {driver})")).unwrap_or_default()
}

fn reasons(obstacles: &[Obstacle]) -> Option<String> {
    let reasons: Vec<_> = obstacles.iter().map(|obstacle| obstacle.why.as_str()).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn can_be_native(device: &Device) -> bool {
    device.xdp.is_none_or(|xdp| xdp.native) && !has_no_driver(&device.kind)
}

/// Kinds of virtual interfaces whose frames come from another interface, and that have no native XDP.
fn has_no_driver(kind: &str) -> bool {
    const KINDS: [&str; 13] = [
        "vlan",
        "bridge",
        "macvlan",
        "ipvlan",
        "dummy",
        "ifb",
        "wireguard",
        "vxlan",
        "geneve",
        "vrf",
        "team",
        "gretap",
        "ipip",
    ];
    KINDS.contains(&kind)
}

/// All that is known to stand in the way of native mode.
fn obstacles(device: &Device) -> Vec<Obstacle> {
    let Device { name, mtu, kind, xdp, bond_mode_without_native, .. } = device;
    let obstacle = |why: String, remedy: Option<String>| Obstacle { why, remedy };
    if has_no_driver(kind) {
        return vec![obstacle(format!("interfaces of the kind {kind} have none"), None)];
    }
    if let Some(mode) = bond_mode_without_native {
        let remedy = "name the bond's members in the rules file instead of the bond".to_owned();
        return vec![obstacle(format!("bonds have none in mode {mode}"), Some(remedy))];
    }
    if *xdp == Some(XdpFeatures { native: false, multi_buffer: false }) || name == "lo" {
        return vec![obstacle(format!("the driver{} has none", named(device)), None)];
    }
    let mut found = Vec::new();
    if *mtu > ONE_PAGE_MTU && xdp.is_none_or(|xdp| !xdp.multi_buffer) {
        let sure = if xdp.is_some() { "is" } else { "may be" };
        found.push(obstacle(
            format!("the MTU of {mtu} {sure} too large for the driver's XDP"),
            Some(format!("ip link set dev {name} mtu 1500")),
        ));
    }
    found.extend(merging(device));
    found
}

/// Cards that merge frames. Drivers switch `rx-gro-hw` off themselves, if they can: virtio needs its host for
/// that.
fn merging(device: &Device) -> Option<Obstacle> {
    const OFFLOADS: [(&str, &str); 2] = [("rx-lro", "lro"), ("rx-gro-hw", "rx-gro-hw")];
    let is_fixed = |feature: &str| device.fixed_features.contains(feature);
    let tried = device.own().is_some();
    let on: Vec<_> = OFFLOADS
        .into_iter()
        .filter(|(feature, _)| device.has(feature) == Some(true))
        .filter(|(feature, _)| *feature == "rx-lro" || tried || is_fixed(feature))
        .collect();
    if on.is_empty() {
        return None;
    }
    let options: Vec<_> = on.iter().map(|(_, option)| *option).collect();
    let fixed = on.iter().any(|(feature, _)| is_fixed(feature));
    Some(Obstacle {
        why: format!("the card merges frames ({})", options.join(", ")),
        remedy: Some(if fixed {
            "have the host of this virtual machine switch it off (guest_tso4, guest_tso6, guest_ufo)"
                .to_owned()
        } else {
            format!("ethtool -K {} {} off", device.name, options.join(" off "))
        }),
    })
}

fn named(device: &Device) -> String {
    device.driver.as_ref().map(|driver| format!(" {driver}")).unwrap_or_default()
}
