//! The kernel, this process, and memory.

use super::{
    Finding, Severity,
    facts::{Host, Lack, Pins, Policy},
};

const SUBJECT: &str = "host";
/// Bytes in one set of buckets.
const SET: u64 = 64;

pub(super) fn examine(host: &Host, policy: Option<&Policy>, pins: &Pins) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Host { release, lacking, .. } = host;
    if lacking.is_empty() {
        findings.push(Finding::ok(
            "kernel",
            SUBJECT,
            format!("Linux {release} has type information and a BPF file system"),
        ));
    }
    findings.extend(
        lacking.iter().map(|Lack { what, remedy }| Finding::problem("kernel", SUBJECT, what).remedy(remedy)),
    );
    findings.extend(capabilities(host));
    findings.extend(compiler(host));
    findings.extend(statistics(host));
    findings.extend(policy.and_then(|policy| memory(host, policy, pins)));
    findings
}

/// Only `doctor` lacks them: a daemon that runs has them.
fn capabilities(host: &Host) -> Option<Finding> {
    let missing = host.missing_capabilities.as_ref()?;
    Some(
        Finding::note("capabilities", SUBJECT, format!("this process has no {missing}"))
            .why("the daemon needs them to load and attach its program, and doctor to see what is pinned")
            .remedy("sudo ratelimit doctor"),
    )
}

fn compiler(host: &Host) -> Option<Finding> {
    match (host.jit, host.jit_harden) {
        (Some(0), _) => Some(
            Finding::warning("jit", SUBJECT, "the BPF compiler is off")
                .why("every packet is judged by an interpreter, several times slower")
                .remedy("sysctl -w net.core.bpf_jit_enable=1"),
        ),
        (_, Some(2)) => Some(
            Finding::note("jit", SUBJECT, "the BPF compiler hardens programs of root, too")
                .why("blinded constants make the program slower and larger; its verdicts are the same")
                .remedy("sysctl -w net.core.bpf_jit_harden=1, if no one but root may load programs"),
        ),
        (Some(_), _) => Some(Finding::ok("jit", SUBJECT, "the BPF compiler is on")),
        (None, _) => None,
    }
}

fn statistics(host: &Host) -> Option<Finding> {
    (host.statistics == Some(1)).then(|| {
        Finding::warning("bpf_statistics", SUBJECT, "the kernel measures the time of every BPF program run")
            .why("two looks at the clock for every packet cost more than shedding it does")
            .remedy("sysctl -w kernel.bpf_stats_enabled=0")
    })
}

/// The table that the policy needs, where it is not there already.
fn memory(host: &Host, policy: &Policy, pins: &Pins) -> Option<Finding> {
    let available = host.memory_available?;
    let needed = policy.sets.saturating_mul(SET);
    if pins.program_id.is_some() || needed < available / 4 {
        return None;
    }
    let what =
        format!("the policy's buckets take {} MiB, {} MiB are available", needed >> 20, available >> 20);
    let severity = if needed < available { Severity::Warning } else { Severity::Problem };
    let finding = Finding::new(severity, "memory", SUBJECT, what);
    Some(finding.remedy("lower `network.sources.capacity` in the rules file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            release: "6.12.0".to_owned(),
            jit: Some(1),
            jit_harden: Some(0),
            statistics: Some(0),
            cpus: 4,
            memory_available: Some(1 << 30),
            ..Host::default()
        }
    }

    fn only(host: &Host, check: &str) -> Option<(Severity, String)> {
        let policy = Policy { sets: 1 << 19, ..Policy::default() };
        let found = examine(host, Some(&policy), &Pins::default());
        found.into_iter().find(|it| it.check == check).map(|it| (it.severity, it.what))
    }

    #[test]
    fn a_host_as_it_should_be_has_nothing_to_mend() {
        let found = examine(&host(), Some(&Policy::default()), &Pins::default());
        assert!(found.iter().all(|finding| finding.severity == Severity::Ok), "{found:?}");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn what_the_kernel_lacks_is_a_problem_with_a_remedy() {
        let lack = Lack { what: "too old".to_owned(), remedy: "boot a newer one".to_owned() };
        let found = examine(&Host { lacking: vec![lack], ..host() }, None, &Pins::default());
        let kernel: Vec<_> = found.iter().filter(|finding| finding.check == "kernel").collect();
        assert_eq!(kernel.len(), 1);
        assert_eq!(
            (kernel[0].severity, kernel[0].remedy.as_deref()),
            (Severity::Problem, Some("boot a newer one"))
        );
    }

    #[test]
    fn what_only_this_process_lacks_is_no_problem() {
        let found =
            only(&Host { missing_capabilities: Some("CAP_BPF".to_owned()), ..host() }, "capabilities");
        assert_eq!(found, Some((Severity::Note, "this process has no CAP_BPF".to_owned())));
    }

    #[test]
    fn a_slow_way_to_run_programs_is_told() {
        let severity = |host: &Host, check| only(host, check).map(|(severity, _)| severity);
        assert_eq!(severity(&Host { jit: Some(0), ..host() }, "jit"), Some(Severity::Warning));
        assert_eq!(severity(&Host { jit_harden: Some(2), ..host() }, "jit"), Some(Severity::Note));
        assert_eq!(severity(&Host { jit: None, jit_harden: None, ..host() }, "jit"), None);
        let measured = Host { statistics: Some(1), ..host() };
        assert_eq!(severity(&measured, "bpf_statistics"), Some(Severity::Warning));
    }

    #[test]
    fn a_table_larger_than_the_memory_is_a_problem_before_it_is_made() {
        let with = |memory| Host { memory_available: Some(memory), ..host() };
        assert_eq!(only(&with(1 << 30), "memory"), None);
        assert_eq!(only(&with(100 << 20), "memory").map(|it| it.0), Some(Severity::Warning));
        let (severity, what) = only(&with(16 << 20), "memory").expect("a finding");
        assert_eq!(severity, Severity::Problem);
        assert_eq!(what, "the policy's buckets take 32 MiB, 16 MiB are available");

        let policy = Policy { sets: 1 << 19, ..Policy::default() };
        let pinned = Pins { program_id: Some(7), ..Pins::default() };
        let found = examine(&with(16 << 20), Some(&policy), &pinned);
        assert!(found.iter().all(|finding| finding.check != "memory"), "it is there already");
    }
}
