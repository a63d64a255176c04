//! Rules that block sources by themselves.

use super::reach::Reach;
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted},
    policy::{Block, Per, Rule},
};

/// The most packets a second that a link delivers: 400 Gbit/s of the shortest frames, each 84 bytes with its
/// preamble and the gap behind it.
const MOST_PACKETS: u128 = 400_000_000_000 / (84 * 8);

/// Warns about the `block` of a rule, which stands at `place`.
pub(in crate::config) fn block(rule: &Rule, place: Place, diagnostics: &mut Diagnostics<'_>) {
    let Some(block) = rule.block else { return };
    let name = Quoted(&rule.name);
    if rule.count_only {
        let message = format!("the rule {name} never blocks: it only counts, and sheds nothing");
        let mistake = Mistake::new(Code::NeverBlocks, message).expected("no `action: count`, or no `block`");
        diagnostics.warn(place, mistake);
        return;
    }
    if u128::from(block.after) > most_in(&block) {
        let message =
            format!("the rule {name} never blocks: no link delivers `after` packets `within` that time");
        let mistake = Mistake::new(Code::NeverBlocks, message)
            .expected(format!("at most {} packets within that time", most_in(&block)));
        diagnostics.warn(place, mistake);
        return;
    }
    if !Reach::of(&rule.matches).possible().is_established_tcp() {
        let message = format!(
            "the rule {name} blocks sources that it takes from packets which anybody can forge: who pretends to \
             be another has that one blocked"
        );
        let mistake = Mistake::new(Code::SpoofedBlock, message).expected(
            "tcp_flags: \"ack,!syn\" in `match`, for segments of connections that stand; whoever must never be \
             blocked belongs into `allow` or `management`",
        );
        diagnostics.warn(place, mistake);
    }
    let refuses_for_others =
        rule.limits.iter().all(|limit| limit.bucket.is_some() && limit.per != Per::Source);
    if refuses_for_others {
        let message = format!(
            "the rule {name} may block a source for what others send: sources share each of its limits, and \
             whose packets find one used up is chance"
        );
        let mistake =
            Mistake::new(Code::SharedBlock, message).expected("a limit `per: source` beside the others");
        diagnostics.warn(place, mistake);
    }
}

/// How many packets can be shed within the time of a block, at most.
fn most_in(block: &Block) -> u128 {
    MOST_PACKETS * block.within.as_millis() / 1000
}
