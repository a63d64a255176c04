//! What is pinned, whether this build can use it, and who works with it.

use super::{
    Finding,
    facts::{Link, Pins},
};
use crate::text::number;

pub(super) fn examine(pins: &Pins) -> Vec<Finding> {
    let subject = pins.root.display().to_string();
    if pins.hidden {
        return Vec::new();
    }
    let mut findings = vec![daemon(pins, &subject)];
    findings.extend(socket(pins));
    findings.extend(links(pins, &subject));
    findings.extend(pins.misfits.iter().map(|(map, difference)| {
        Finding::problem(
            "layout",
            &subject,
            format!("this build cannot use the pinned map `{map}`: {difference}"),
        )
        .why("the next start of this build refuses it, and what is enforced stays as it is")
        .remedy("run the build that made it, or begin anew: ratelimit detach")
    }));
    findings.extend(versions(pins, &subject));
    if !pins.leftovers.is_empty() {
        let names = pins.leftovers.join(", ");
        findings.push(
            Finding::note("leftovers", &subject, format!("a start that was interrupted left {names}"))
                .why("they only take memory; the next start removes them"),
        );
    }
    findings.extend(trial(pins, &subject));
    findings.extend(table(pins, &subject));
    findings
}

fn daemon(pins: &Pins, subject: &str) -> Finding {
    let enforced = pins.links.iter().any(|link| link.alive);
    match &pins.daemon {
        Some(holder) => Finding::ok("daemon", subject, format!("the daemon runs: {holder}")),
        None if enforced => Finding::warning(
            "daemon",
            subject,
            "no daemon runs; the last policy is enforced without one",
        )
        .why(
            "nothing follows changed files, new interfaces or expired blocks, and blocks are not kept \
                 for the next boot",
        )
        .remedy("start it again: systemctl start ratelimit, or ratelimit daemon --config FILE"),
        None => Finding::note("daemon", subject, "no daemon runs, and nothing is enforced")
            .remedy("ratelimit daemon --config FILE"),
    }
}

fn socket(pins: &Pins) -> Option<Finding> {
    pins.daemon.as_ref()?;
    let subject = pins.socket_path.display().to_string();
    match pins.socket.as_ref()? {
        Ok(()) => Some(Finding::ok("admin_socket", subject, "the daemon answers")),
        Err(why) => Some(
            Finding::warning("admin_socket", subject, format!("the daemon does not answer: {why}"))
                .why("reload, apply, mode and events need it; block and show do without")
                .remedy("give the path that the daemon was started with: --admin-socket PATH"),
        ),
    }
}

fn links(pins: &Pins, subject: &str) -> Vec<Finding> {
    let Pins { links, program_id, .. } = pins;
    let named =
        |links: Vec<&Link>| links.iter().map(|link| link.interface.as_str()).collect::<Vec<_>>().join(", ");
    let mut findings = Vec::new();
    let stale: Vec<_> = links.iter().filter(|link| !link.alive).collect();
    if !stale.is_empty() {
        findings.push(
            Finding::warning(
                "stale_links",
                subject,
                format!("links without their interface: {}", named(stale)),
            )
            .why("the interface is gone, was made anew, or something else runs on it")
            .remedy("ratelimit reload attaches to what is there now; ratelimit detach removes them"),
        );
    }
    let other: Vec<_> = links.iter().filter(|link| link.alive && link.program_id != *program_id).collect();
    if !other.is_empty() {
        findings.push(
            Finding::problem(
                "other_program",
                subject,
                format!("not the recorded policy runs on {}", named(other)),
            )
            .why("the daemon was interrupted while it changed the policy, so interfaces differ")
            .remedy("start the daemon again: it puts one policy on all interfaces"),
        );
    }
    findings
}

fn versions(pins: &Pins, subject: &str) -> Option<Finding> {
    let Pins { versions, version, .. } = pins;
    let others: Vec<_> =
        versions.iter().filter(|it| *it != version).map(|version| format!("v{version}")).collect();
    if others.is_empty() {
        return None;
    }
    let what = format!("state of another build: {} (this one has v{version})", others.join(", "));
    Some(if versions.contains(version) {
        Finding::note("versions", subject, what)
            .why("it only takes memory")
            .remedy("ratelimit detach removes all versions; then start the daemon")
    } else {
        Finding::note("versions", subject, what)
            .why("the next start of this build carries over what it can: blocks always")
    })
}

fn trial(pins: &Pins, subject: &str) -> Option<Finding> {
    (pins.trial && pins.daemon.is_none()).then(|| {
        Finding::warning("trial", subject, "a policy is on trial, and no daemon runs to end it")
            .why("only its guard process goes back when the time is over")
            .remedy("ratelimit apply rollback, or start the daemon: its rules file is in force again then")
    })
}

fn table(pins: &Pins, subject: &str) -> Option<Finding> {
    let Pins { displaced, table_full, .. } = *pins;
    let what = match (displaced, table_full) {
        (0, 0) => return None,
        (displaced, 0) => format!("{} new sources displaced others that still owed", number(displaced)),
        (_, full) => format!("{} packets of new sources were shed because the table was full", number(full)),
    };
    Some(
        Finding::warning("table", subject, what)
            .why("there were more sources at a time than `network.sources.capacity`")
            .remedy("raise `network.sources.capacity` in the rules file, or limit per prefix"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{doctor::Severity, state::Holder};

    fn link(interface: &str, alive: bool) -> Link {
        Link { interface: interface.to_owned(), program_id: Some(7), alive }
    }

    fn running() -> Pins {
        Pins {
            root: "/sys/fs/bpf/ratelimit".into(),
            versions: vec![2],
            version: 2,
            links: vec![link("eth0", true)],
            program_id: Some(7),
            daemon: Some(Holder { pid: Some(99), command: None }),
            socket: Some(Ok(())),
            ..Pins::default()
        }
    }

    fn severity(pins: &Pins, check: &str) -> Option<Severity> {
        examine(pins).into_iter().find(|finding| finding.check == check).map(|finding| finding.severity)
    }

    #[test]
    fn a_daemon_that_runs_and_answers_is_as_it_should_be() {
        let found = examine(&running());
        assert!(found.iter().all(|finding| finding.severity == Severity::Ok), "{found:?}");
        assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["daemon", "admin_socket"]);
    }

    #[test]
    fn enforcement_without_a_daemon_is_a_warning_and_nothing_at_all_a_note() {
        assert_eq!(severity(&Pins { daemon: None, ..running() }, "daemon"), Some(Severity::Warning));
        let nothing = Pins { daemon: None, links: Vec::new(), ..running() };
        assert_eq!(severity(&nothing, "daemon"), Some(Severity::Note));
        assert_eq!(severity(&nothing, "admin_socket"), None, "nobody expects it to answer");
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_a_warning() {
        let silent = Pins { socket: Some(Err("no such file".to_owned())), ..running() };
        assert_eq!(severity(&silent, "admin_socket"), Some(Severity::Warning));
        assert_eq!(severity(&Pins { socket: None, ..running() }, "admin_socket"), None);
    }

    #[test]
    fn links_that_do_nothing_and_links_with_another_program_are_told_apart() {
        let stale = Pins { links: vec![link("eth0", true), link("eth1", false)], ..running() };
        let found = examine(&stale);
        let stale = found.iter().find(|finding| finding.check == "stale_links").expect("a finding");
        assert_eq!(stale.what, "links without their interface: eth1");
        assert_eq!(severity(&running(), "other_program"), None);
        assert_eq!(
            severity(&Pins { program_id: Some(8), ..running() }, "other_program"),
            Some(Severity::Problem)
        );
    }

    #[test]
    fn maps_that_do_not_fit_are_a_problem_for_each() {
        let misfit = |name: &str| (name.to_owned(), "its values have 72 bytes, expected 64".to_owned());
        let pins = Pins { misfits: vec![misfit("buckets"), misfit("events")], ..running() };
        let found = examine(&pins);
        let found: Vec<_> = found.iter().filter(|finding| finding.check == "layout").collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].severity == Severity::Problem && found[0].what.contains("`buckets`"), "{found:?}");
    }

    #[test]
    fn what_other_builds_and_interrupted_starts_left_is_only_noted() {
        let older = Pins { versions: vec![1], ..running() };
        let found = examine(&older);
        let versions = found.iter().find(|finding| finding.check == "versions").expect("a finding");
        assert_eq!((versions.severity, &versions.remedy), (Severity::Note, &None));
        let both = Pins { versions: vec![1, 2], ..running() };
        let found = examine(&both);
        let versions = found.iter().find(|finding| finding.check == "versions").expect("a finding");
        assert!(versions.remedy.as_ref().is_some_and(|remedy| remedy.contains("detach")));
        let left = Pins { leftovers: vec!["program-next".to_owned()], ..running() };
        assert_eq!(severity(&left, "leftovers"), Some(Severity::Note));
    }

    #[test]
    fn a_trial_that_no_daemon_ends_is_a_warning() {
        assert_eq!(severity(&Pins { trial: true, ..running() }, "trial"), None);
        assert_eq!(
            severity(&Pins { trial: true, daemon: None, ..running() }, "trial"),
            Some(Severity::Warning)
        );
    }

    #[test]
    fn a_table_too_small_for_its_sources_is_a_warning() {
        assert_eq!(severity(&Pins { displaced: 1, ..running() }, "table"), Some(Severity::Warning));
        let full = examine(&Pins { table_full: 1200, displaced: 5, ..running() });
        let full = full.iter().find(|finding| finding.check == "table").expect("a finding");
        assert!(full.what.starts_with("1,200 packets"), "{full:?}");
    }

    #[test]
    fn nothing_is_said_of_pins_that_cannot_be_read() {
        assert_eq!(examine(&Pins { hidden: true, ..Pins::default() }), []);
    }
}
