use super::*;
use crate::network::interfaces;

/// Interfaces that run the policy, run another one, or are gone.
fn standing(interfaces: &[(&str, Option<bool>)]) -> Vec<Interface> {
    let interface = |&(name, current): &(&str, Option<bool>)| Interface {
        name: name.to_owned(),
        index: 1,
        mode: current.map(|_| interfaces::Mode::Native),
        program_id: Some(1),
        current: current == Some(true),
        note: Some("why not".to_owned()),
    };
    interfaces.iter().map(interface).collect()
}

#[test]
fn a_policy_is_ready_where_it_runs_on_all_that_it_is_meant_for() {
    /// Names in the file, interfaces and whether they run the policy, what is lacking.
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, Option<bool>)], Option<&'a str>);
    let eth0 = Some("eth0: why not");
    let cases: &[Case<'_>] = &[
        (&["eth0", "eth1"], &[("eth0", Some(true)), ("eth1", Some(true))], None),
        (&["eth0"], &[("eth0", Some(false))], eth0),
        (&["eth0"], &[("eth0", None)], eth0),
        (&["eth0", "eth1"], &[("eth1", Some(true))], Some("eth0: not attached")),
        (&["eth*"], &[("eth0", Some(true))], None),
        (&["eth*"], &[], None),
        // Gone, and only a pattern named it; still there, and it runs something older.
        (&["eth*"], &[("eth0", None)], None),
        (&["eth*"], &[("eth0", Some(false))], eth0),
    ];
    for (names, interfaces, expected) in cases {
        let found = lacking(names.iter().copied(), &standing(interfaces));
        assert_eq!(found.as_deref(), *expected, "{names:?} {interfaces:?}");
    }
}

#[test]
fn ports_are_told_as_rules_files_have_them() {
    assert_eq!((ports(&(22..=22)), ports(&(8000..=8010))), ("22".to_owned(), "8000-8010".to_owned()));
}
