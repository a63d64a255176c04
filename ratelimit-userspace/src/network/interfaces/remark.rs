//! What an operator should know of limiting packets at an interface of some kind.

use super::{Interface, Upper};

/// One sentence for an interface that is not simply a network card. `None`: nothing to know.
pub fn remark(interface: &Interface) -> Option<String> {
    let Interface { headless, upper, .. } = interface;
    if *headless {
        return Some(
            "its frames have no Ethernet header, so no packet is recognised: not protected".to_owned(),
        );
    }
    let parts = [upper.as_ref().and_then(below), kind(interface)];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// One that belongs to another.
fn below(Upper { name, kind }: &Upper) -> Option<String> {
    match kind.as_str() {
        "bond" | "team" => {
            Some(format!("a member of the {kind} {name}, whose other members are not limited here"))
        }
        "bridge" => {
            Some(format!("a port of the bridge {name}: what is forwarded, as to guests, is limited as well"))
        }
        _ => None,
    }
}

fn kind(interface: &Interface) -> Option<String> {
    let Interface { kind, lower, members, .. } = interface;
    let lower = lower.as_deref().unwrap_or("the interface beneath");
    let members = match members.as_slice() {
        [] => "it has none now".to_owned(),
        members => members.join(", "),
    };
    Some(match kind.as_str() {
        "vlan" => format!(
            "a VLAN of {lower}, where its packets arrive first, tagged, and are cheaper to shed (`match: vlan`)"
        ),
        "macvlan" | "macvtap" | "ipvlan" => {
            format!("a share of {lower}, where its packets arrive first and are cheaper to shed")
        }
        "bond" => format!(
            "a bond: native mode is there only in some bond modes, else name its members instead ({members})"
        ),
        "team" => format!("a team, which has no native mode: name its ports instead ({members})"),
        "bridge" => format!(
            "a bridge: it receives only what is for this host; to limit what is forwarded, name its ports \
             ({members})"
        ),
        "vrf" => format!("a VRF: name the interfaces in it instead ({members})"),
        "tun" => "a tap device: its packets come from a program or guest on this host".to_owned(),
        "vxlan" | "geneve" | "gretap" | "ip6gretap" => {
            "a tunnel: what it carries is limited here, its outer packets where they arrive".to_owned()
        }
        "dummy" => "a dummy: it receives nothing".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(kind: &str) -> Interface {
        Interface {
            name: "it0".to_owned(),
            kind: kind.to_owned(),
            lower: Some("eth9".to_owned()),
            members: vec!["eth1".to_owned(), "eth2".to_owned()],
            ..Interface::default()
        }
    }

    #[test]
    fn stacked_interfaces_name_where_to_look_instead() {
        for (name, words) in [
            ("vlan", ["eth9", "tagged"]),
            ("macvlan", ["eth9", "first"]),
            ("bond", ["eth1, eth2", "native"]),
            ("team", ["eth1, eth2", "native"]),
            ("bridge", ["eth1, eth2", "forwarded"]),
            ("vrf", ["eth1, eth2", "instead"]),
            ("tun", ["guest", "this host"]),
        ] {
            let remark = remark(&kind(name)).expect(name);
            assert!(words.iter().all(|word| remark.contains(word)), "{name}: {remark}");
        }
        let bare = Interface { members: Vec::new(), lower: None, ..kind("bond") };
        assert!(remark(&bare).is_some_and(|remark| remark.contains("it has none now")));
        assert!(remark(&Interface { kind: "vlan".to_owned(), ..bare }).expect("one").contains("beneath"));
    }

    #[test]
    fn a_card_and_a_veth_need_no_words() {
        assert_eq!(remark(&kind("")), None);
        assert_eq!(remark(&kind("veth")), None);
    }

    #[test]
    fn members_and_ports_name_what_they_belong_to() {
        let upper = |kind: &str| Some(Upper { name: "up0".to_owned(), kind: kind.to_owned() });
        let bond = Interface { upper: upper("bond"), ..kind("") };
        assert!(remark(&bond).expect("one").contains("member of the bond up0"));
        let both = remark(&Interface { upper: upper("bridge"), ..kind("vlan") }).expect("one");
        assert!(both.contains("port of the bridge up0") && both.contains("VLAN of eth9"), "{both}");
        assert_eq!(remark(&Interface { upper: upper("vrf"), ..kind("") }), None);
    }

    #[test]
    fn frames_without_an_ethernet_header_are_said_to_be_unprotected() {
        let wireguard = Interface { headless: true, ..kind("wireguard") };
        assert!(remark(&wireguard).expect("one").contains("not protected"));
    }
}
