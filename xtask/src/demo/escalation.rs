//! The second act: a client hammers an API, gets 429s, and then vanishes at layer 3; an honest one beside it
//! notices nothing.

use std::{
    fmt::Write as _,
    net::Ipv4Addr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::RECEIVING_CPU;
use crate::{
    hammered::{Hammered, LIMITS, RULES, Seen},
    lab::Lab,
    workspace::Workspace,
};

/// Printed before it.
pub(super) const STORY: &str = "\
The second act: an API behind nginx, which asks the limiter before it answers. One client asks twice a second, as
it may; another one, from an address of its own, asks as fast as twenty times a second.";

const HONEST: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
const ABUSER: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
const HONEST_GAP: Duration = Duration::from_millis(500);
const ABUSER_GAP: Duration = Duration::from_millis(50);
/// How long both ask. The abuser is shed after less than half of it.
const LENGTH: Duration = Duration::from_secs(7);

/// What one request came to: when it was sent, what was seen, and how long that took.
type Asked = (Duration, Seen, Duration);

/// Plays it, and fails if the abuser does not vanish or the honest client notices.
pub(super) fn play(workspace: &Workspace) -> Result<()> {
    println!("{STORY}\n\nThe rules file, and api.yaml that it names:\n\n{RULES}\n{LIMITS}");
    let lab = Lab::new("demo-escalation")?;
    lab.queue_at_server()?;
    let site = Hammered::start(workspace, lab, RULES, &[HONEST, ABUSER], RECEIVING_CPU)
        .context("failed to set the scene (nginx and all else is installed by `cargo xtask setup`)")?;
    let begin = Instant::now();
    let (honest, abuser) = thread::scope(|scope| {
        let honest = scope.spawn(|| ask_at_pace(&site, HONEST, HONEST_GAP, begin));
        let abuser = ask_at_pace(&site, ABUSER, ABUSER_GAP, begin);
        (honest.join().expect("a client does not panic"), abuser)
    });
    let (honest, abuser) = (honest?, abuser?);
    println!("{}", table(&honest, &abuser));
    println!("$ ratelimit events\n{}", escalations(&site.tell(&["events", "--limit", "20"])?));
    println!("$ ratelimit blocks\n{}", site.tell(&["blocks"])?);
    verdict(&honest, &abuser)?;
    site.tell(&["unblock", &ABUSER.to_string()])?;
    ensure!(site.ask(ABUSER)? != Seen::Nothing, "after `ratelimit unblock` the abuser is still shed");
    println!("`ratelimit unblock {ABUSER}` brings it back, and forgets what it did.");
    Ok(())
}

fn ask_at_pace(site: &Hammered, client: Ipv4Addr, gap: Duration, begin: Instant) -> Result<Vec<Asked>> {
    let mut asked = Vec::new();
    let mut due = Duration::ZERO;
    while begin.elapsed() < LENGTH {
        let sent = begin.elapsed();
        let seen = site.ask(client)?;
        asked.push((sent, seen, begin.elapsed().saturating_sub(sent)));
        due = (due + gap).max(sent);
        thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    Ok(asked)
}

/// Second by second, what both saw.
fn table(honest: &[Asked], abuser: &[Asked]) -> String {
    let mut text = format!("{:<8}{:<40}{}\n", "second", "the abuser sees", "the honest client sees");
    for second in 0..LENGTH.as_secs() {
        let of = |asked: &[Asked]| saw(asked.iter().filter(|(sent, ..)| sent.as_secs() == second));
        let _ = writeln!(text, "{:<8}{:<40}{}", second + 1, of(abuser), of(honest));
    }
    text
}

fn saw<'a>(asked: impl Iterator<Item = &'a Asked>) -> String {
    let asked: Vec<_> = asked.collect();
    let counts = [(Seen::Page, "pages"), (Seen::Denied, "times 429"), (Seen::Nothing, "times nothing")];
    let counts =
        counts.map(|(wanted, words)| (asked.iter().filter(|(_, seen, _)| *seen == wanted).count(), words));
    let told = counts.iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}"));
    told.collect::<Vec<_>>().join(", ")
}

/// The lines of the log that tell of escalations.
fn escalations(events: &str) -> String {
    events
        .lines()
        .filter(|line| line.contains("escalated"))
        .fold(String::new(), |text, line| text + line + "\n")
}

fn verdict(honest: &[Asked], abuser: &[Asked]) -> Result<()> {
    let noticed = honest.iter().filter(|(_, seen, _)| *seen != Seen::Page).count();
    ensure!(noticed == 0, "{noticed} of {} honest requests were not answered", honest.len());
    let denied = abuser.iter().filter(|(_, seen, _)| *seen == Seen::Denied).count();
    ensure!(denied > 0, "the abuser got no 429");
    let (_, last, _) = abuser.last().context("the abuser asked nothing")?;
    ensure!(*last == Seen::Nothing, "the abuser is still answered");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_saw_is_not_told() {
        let asked = |seen| (Duration::ZERO, seen, Duration::ZERO);
        let all = [Seen::Page, Seen::Page, Seen::Nothing].map(asked);
        assert_eq!(saw(all.iter()), "2 pages, 1 times nothing");
        assert_eq!(saw([].iter()), "");
    }

    #[test]
    fn an_honest_client_that_notices_is_a_failure() {
        let asked = |seen| (Duration::ZERO, seen, Duration::ZERO);
        let abuser = [Seen::Page, Seen::Denied, Seen::Nothing].map(asked);
        assert!(verdict(&[asked(Seen::Page)], &abuser).is_ok());
        assert!(verdict(&[asked(Seen::Nothing)], &abuser).is_err());
        assert!(verdict(&[asked(Seen::Page)], &abuser[..2]).is_err());
    }
}
