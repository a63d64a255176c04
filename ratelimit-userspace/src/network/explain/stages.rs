//! The stages before the rules.

use std::time::SystemTime;

use ratelimit_common::{
    packet::{ABSENT, Packet},
    policy::{listed, stage},
    record::Reason,
};

use super::{Stage, Surroundings};
use crate::{
    admin::schema::text,
    config::policy::Management,
    network::{
        blocks::{Block, Origin},
        in_force::{Listed, Policy, ip},
        overrides::Under,
    },
};

/// The stages up to the one that decides, and what it decides.
pub(super) fn walk(
    policy: &Policy,
    packet: &Packet,
    surroundings: &Surroundings,
) -> (Vec<Stage>, Option<Reason>) {
    let Surroundings { listed, blocks, under } = surroundings;
    let mut stages = Vec::new();
    let mut step = |stage: &'static str, outcome: Result<(Reason, String), String>| {
        let (decision, why) = match outcome {
            Ok((reason, why)) => (Some(reason), why),
            Err(why) => (None, why),
        };
        stages.push(Stage { stage, decides: decision.is_some(), why });
        decision
    };
    let decision = step("allow", allow(listed))
        .or_else(|| step("management", management(&policy.network.management, packet)))
        .or_else(|| step("deny", deny(listed, packet)))
        .or_else(|| step("blocked", blocked(blocks, packet)))
        .or_else(|| step("neighbour", neighbour(packet)));
    if decision.is_none() && policy.compiled.stages & stage::OVERRIDES != 0 {
        let why = match under {
            Some(under) => put_under(under, SystemTime::now()),
            None => "the source is put under no rule".to_owned(),
        };
        stages.push(Stage { stage: "override", decides: false, why });
    }
    (stages, decision)
}

fn allow(listed: &Listed) -> Result<(Reason, String), String> {
    if !listed.is_allowed() {
        return Err("the source is not on the allow list".to_owned());
    }
    let by = listed.allow.map(|prefix| format!(" ({prefix})")).unwrap_or_default();
    Ok((Reason::Allowed, format!("the source is on the allow list{by}, which beats everything")))
}

fn management(entries: &[Management], packet: &Packet) -> Result<(Reason, String), String> {
    let source = ip(&packet.source);
    let mut covering = entries.iter().filter(|entry| entry.prefix.contains(&source)).peekable();
    if covering.peek().is_none() {
        return Err("no management entry covers the source".to_owned());
    }
    let port = u16::try_from(packet.destination_port).ok();
    let met =
        covering.find(|entry| entry.ports.iter().any(|ports| port.is_some_and(|port| ports.contains(&port))));
    match met {
        Some(entry) => Ok((
            Reason::Management,
            format!("a management entry covers the source ({}) and the port: it is never shed", entry.prefix),
        )),
        None => Err("a management entry covers the source, but not the destination port".to_owned()),
    }
}

fn deny(listed: &Listed, packet: &Packet) -> Result<(Reason, String), String> {
    if !listed.is_denied() {
        return Err("the source is not on the deny list".to_owned());
    }
    let by = listed.deny.map(|prefix| format!(" ({prefix})")).unwrap_or_default();
    if packet.neighbour && listed.bits & listed::DENY_EXACT == 0 {
        return Err(format!(
            "the source is in a denied network{by}, which does not stop neighbour discovery: only its own address \
             on the list does"
        ));
    }
    Ok((Reason::Denied, format!("the source is on the deny list{by}")))
}

fn blocked(blocks: &[Block], packet: &Packet) -> Result<(Reason, String), String> {
    let is_exact = |block: &&Block| block.prefix.prefix_len() == block.prefix.max_prefix_len();
    let stops = blocks.iter().find(|block| !packet.neighbour || is_exact(block));
    match (stops, blocks.first()) {
        (Some(block), _) => Ok((Reason::Blocked, words(block, SystemTime::now()))),
        (None, Some(block)) => Err(format!(
            "{} is blocked, which does not stop neighbour discovery: only a block of this very address does",
            block.prefix
        )),
        (None, None) => Err("the source is not blocked".to_owned()),
    }
}

/// `192.0.2.0/24 is blocked for another 9m, by a command: scanning`.
fn words(block: &Block, now: SystemTime) -> String {
    let Block { prefix, until, reason, origin, .. } = block;
    let time = match until.map(|until| until.duration_since(now).unwrap_or_default()) {
        Some(left) => format!("for another {}", text::duration_up(left)),
        None => "until somebody ends it".to_owned(),
    };
    let by = match origin {
        Origin::Command => "by a command".to_owned(),
        Origin::Rule(rule) if rule.is_empty() => "by a rule".to_owned(),
        Origin::Rule(rule) => format!("by the rule `{rule}`"),
    };
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("{prefix} is blocked {time}, {by}{reason}")
}

/// `192.0.2.7/32 is put under the rule `tight` for another 9m`.
fn put_under(under: &Under, now: SystemTime) -> String {
    let left = text::duration_up(under.until.duration_since(now).unwrap_or_default());
    format!(
        "{} is put under the rule `{}` for another {left}, which comes before all others",
        under.client, under.rule
    )
}

fn neighbour(packet: &Packet) -> Result<(Reason, String), String> {
    if packet.neighbour {
        Ok((Reason::Neighbour, "neighbour discovery, without which the host cannot be reached".to_owned()))
    } else if packet.icmp_type == ABSENT || packet.icmp_type < 256 {
        Err("it is not ICMPv6".to_owned())
    } else {
        Err("it is not neighbour discovery".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        config::policy::Network,
        network::compile::tests::{network, packet, prefix},
    };

    fn management() -> impl Strategy<Value = Management> {
        (prefix(), vec((0..1024_u16).prop_map(|port| port..=port + 64), 1..3))
            .prop_map(|(prefix, ports)| Management { prefix, ports })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn lists_decide_as_in_the_program(
            allow in vec(prefix(), 0..3),
            deny in vec(prefix(), 0..3),
            management in vec(management(), 0..3),
            packets in vec((packet(), any::<bool>()), 64),
        ) {
            let network = Network { allow, deny, management, ..network(Vec::new()) };
            let policy = Policy::of_file(network, None).expect("a policy");
            for ((mut packet, _), neighbour) in packets {
                packet.neighbour = neighbour;
                let listed = policy.listed(&packet.source).expect("lists of its own");
                let surroundings = Surroundings { listed, ..Surroundings::default() };
                let (_, decision) = walk(&policy, &packet, &surroundings);
                let expected =
                    policy.compiled.lists.judge(&packet).or_else(|| neighbour.then_some(Reason::Neighbour));
                prop_assert_eq!(decision, expected, "{:?}", packet);
            }
        }
    }
}
