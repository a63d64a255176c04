//! What commands tell and do by the pins, in real network namespaces, with a daemon and after it was killed.
//! Needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test namespace_commands -- --include-ignored
//! ```

#[path = "namespace_lifecycle/host.rs"]
#[expect(dead_code, reason = "shared with the tests of the daemon's life")]
mod host;

use std::process::Output;

use host::Host;
use serde_json::Value;

/// The source of the floods.
const SOURCE: &str = "10.128.0.1";

/// Five datagrams of a source pass, and for an hour none after them.
const FIVE: &str =
    "rules: [{ name: udp, match: { protocol: udp }, limits: [{ per: source, rate: 1/h, burst: 5 }] }]";

fn rules(network: &str) -> String {
    format!("interfaces: [{{ name: eth0 }}]\nnetwork: {{ sources: {{ capacity: 1024 }}, {network} }}\n")
}

/// Runs a verb to its end; the socket is that of the host's own daemon.
fn run(host: &Host, arguments: &[&str]) -> Output {
    let socket = host.file("admin.sock");
    host.verb(&[arguments, &["--admin-socket", socket.to_str().expect("a path of this test")]].concat())
}

/// The exit code and what a verb prints with `--json`.
fn json(host: &Host, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = run(host, &[arguments, &["--json"]].concat());
    let told = || format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told())))
}

/// Exit code, standard output and standard error.
fn text(host: &Host, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = run(host, arguments);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
#[ignore = "requires root"]
fn what_is_left_is_told_with_and_without_a_daemon() {
    let host = Host::new("left");
    let daemon = host.start(&rules(FIVE));
    let left = || {
        let (code, shown) = json(&host, &["show", SOURCE]);
        assert_eq!(code, Some(0));
        let rule = &shown["rules"][0];
        assert_eq!((&rule["rule"], &rule["packets"]), (&"udp".into(), &Value::from(["udp"].as_slice())));
        (rule["limits"][0]["left"].as_u64(), rule["admits"].as_bool(), rule["wait"].clone())
    };
    assert_eq!(left(), (Some(5), Some(true), Value::Null));
    assert_eq!(host.send(3, "udp"), (3, 0));
    assert_eq!(left(), (Some(2), Some(true), Value::Null));
    assert_eq!(host.send(10, "udp"), (5, 8));
    let (empty, admits, wait) = left();
    assert_eq!((empty, admits), (Some(0), Some(false)));
    assert!(wait == "1h" || wait.as_str().is_some_and(|wait| wait.starts_with("59m")), "{wait}");

    let explain = ["explain", "--source", SOURCE, "--protocol", "udp", "--destination-port", "53"];
    let (code, explained) = json(&host, &explain);
    assert_eq!(code, Some(0));
    assert_eq!(explained["verdict"]["verdict"], "shed");
    assert_eq!((&explained["verdict"]["rule"], &explained["verdict"]["limit"]), (&"udp".into(), &1.into()));
    assert_eq!(explained["buckets"], "live");
    let other = ["explain", "--source", "10.128.0.99", "--protocol", "udp"];
    assert_eq!(json(&host, &other).1["limits"][0]["left"], 5);

    let (code, told) = json(&host, &["rules"]);
    assert_eq!((code, &told["rules"][0]["passed"]["packets"]), (Some(0), &5.into()));
    assert_eq!(told["rules"][0]["limits"][0]["shed"]["packets"], 8);

    daemon.kill();
    assert_eq!(left().0, Some(0), "what the kernel holds, not what a daemon remembers");
    assert_eq!(json(&host, &explain).1["verdict"]["reason"], "limited");
    let (code, status, _) = text(&host, &["status"]);
    assert_eq!(code, Some(0));
    assert!(status.contains("daemon      not running") && status.contains("eth0"), "{status}");
}

#[test]
#[ignore = "requires root"]
fn lists_in_the_kernel_are_looked_up() {
    let host = Host::new("listed");
    let lists = format!("allow: [10.128.0.0/24], deny: [10.0.0.0/8, 2001:db8::7], {FIVE}");
    let _daemon = host.start(&rules(&lists));
    let fate = |address: &str| json(&host, &["show", address]).1["fate"].clone();
    assert_eq!(fate("10.128.0.1"), "passes");
    assert_eq!(fate("10.200.0.1"), "denied");
    assert_eq!(fate("::ffff:10.200.0.1"), "denied");
    assert_eq!(fate("192.0.2.1"), "rules");
    assert_eq!(fate("2001:db8::7"), "denied");
    let (_, explained, _) = text(&host, &["explain", "--source", "10.200.0.1", "--protocol", "tcp"]);
    assert!(explained.contains("is shed: denied"), "{explained}");
}

#[test]
#[ignore = "requires root"]
fn sources_are_blocked_and_unblocked_without_a_daemon() {
    let host = Host::new("unattended");
    host.start(&rules(FIVE)).kill();
    let (code, out, err) = text(&host, &["block", SOURCE, "--for", "1h", "--reason", "a test"]);
    assert_eq!((code, out.as_str()), (Some(0), "10.128.0.1 is blocked for 1h\n"), "{err}");
    assert!(err.contains("reboot"), "{err}");
    let (code, blocks) = json(&host, &["blocks"]);
    assert_eq!((code, &blocks["blocks"][0]["prefix"]), (Some(0), &"10.128.0.1/32".into()));
    assert_eq!(blocks["blocks"][0]["reason"], "a test");
    assert_eq!(json(&host, &["show", SOURCE]).1["fate"], "blocked");
    host.flood(5);
    let shed = || {
        let counters = json(&host, &["counters"]).1;
        let reasons = counters["reasons"].as_array().expect("a list").clone();
        let blocked = reasons.into_iter().find(|reason| reason["reason"] == "blocked").expect("the reason");
        blocked["shed"]["packets"].as_u64().expect("a number")
    };
    for _ in 0..1000 {
        if shed() == 5 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(shed(), 5);

    assert_eq!(text(&host, &["unblock", SOURCE]).0, Some(0));
    let (code, out, _) = text(&host, &["unblock", SOURCE]);
    assert_eq!((code, out.as_str()), (Some(1), "10.128.0.1 was not blocked\n"));
    assert_eq!(host.send(5, "udp"), (5, 0));
}

#[test]
#[ignore = "requires root"]
fn a_list_is_blocked_but_for_its_mistakes() {
    let host = Host::new("list");
    host.start(&rules(FIVE)).kill();
    let list = host.file("list.txt");
    std::fs::write(&list, "# abuse\n192.0.2.1\n192.0.2.0/24 # a network\n2001:db8::/129\n\n2001:db8::1")
        .expect("a list");
    let file = list.to_str().expect("a path of this test");
    let (code, told) = json(&host, &["block", "--file", file, "--for", "10m"]);
    assert_eq!(code, Some(1));
    assert_eq!((&told["added"], &told["failed"]), (&3.into(), &1.into()));
    assert_eq!(
        (&told["errors"][0]["line"], &told["errors"][0]["entry"]),
        (&4.into(), &"2001:db8::/129".into())
    );
    let (_, _, err) = text(&host, &["block", "--file", file]);
    assert!(err.contains(":4: 2001:db8::/129: "), "{err}");

    let within = json(&host, &["blocks", "--prefix", "192.0.2.0/24"]).1;
    assert_eq!(within["blocks"].as_array().map(Vec::len), Some(2));
    let covers = json(&host, &["blocks", "--covers", "192.0.2.9"]).1;
    assert_eq!(covers["blocks"][0]["prefix"], "192.0.2.0/24");
    assert_eq!(text(&host, &["unblock", "--all"]).1, "3 blocks ended\n");
    assert_eq!(json(&host, &["blocks"]).1["blocks"], Value::Array(Vec::new()));
}

#[test]
#[ignore = "requires root"]
fn nobody_blocks_the_connection_that_they_sit_at() {
    let host = Host::new("lockout");
    let managed = "allow: [198.51.100.0/24], management: [{ prefix: 203.0.113.0/24, ports: 22 }]";
    host.start(&rules(&format!("{managed}, {FIVE}"))).kill();
    let block = |client: &str, prefix: &str, force: bool| {
        let mut command = host.lab.server.command(env!("CARGO_BIN_EXE_ratelimit"));
        command.env("SSH_CONNECTION", format!("{client} 50000 192.0.2.1 22"));
        command.args(["block", prefix, "--admin-socket", "/nonexistent/admin.sock", "--pin-dir"]);
        command.arg(host.pin_dir()).args(force.then_some("--force"));
        let Output { status, stderr, .. } = command.output().expect("it runs");
        (status.code(), String::from_utf8(stderr).expect("text"))
    };
    let (code, err) = block("192.0.2.77", "192.0.2.0/24", false);
    assert_eq!(code, Some(1));
    assert!(err.contains("your own connection from 192.0.2.77:50000") && err.contains("--force"), "{err}");
    assert_eq!(json(&host, &["blocks"]).1["blocks"], Value::Array(Vec::new()));
    for (client, prefix) in
        [("198.51.100.7", "198.51.100.0/24"), ("203.0.113.7", "203.0.113.7"), ("192.0.2.77", "192.0.2.78")]
    {
        assert_eq!(block(client, prefix, false).0, Some(0), "{client} blocks {prefix}");
    }
    assert_eq!(block("192.0.2.77", "192.0.2.0/24", true).0, Some(0));
}

#[test]
#[ignore = "requires root"]
fn what_only_a_daemon_can_do_says_so() {
    let host = Host::new("nodaemon");
    host.start(&rules(FIVE)).kill();
    for arguments in [
        &["reload"][..],
        &["mode", "monitor"],
        &["mode"],
        &["events"],
        &["apply", "/dev/null"],
        &["apply", "confirm"],
    ] {
        let (code, _, err) = text(&host, arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {err}");
        assert!(err.contains("no daemon works with"), "{arguments:?}: {err}");
    }
    let (code, _, err) = text(&host, &["apply", "rollback"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("no policy is on trial"), "{err}");
}

#[test]
#[ignore = "requires root"]
fn nothing_pinned_is_told_as_such() {
    let host = Host::new("nothing");
    for verb in
        [&["rules"][..], &["counters"], &["blocks"], &["sources"], &["show", SOURCE], &["block", SOURCE]]
    {
        let (code, _, err) = text(&host, verb);
        assert_eq!(code, Some(1), "{verb:?}: {err}");
        assert!(
            err.contains("no policy is") || err.contains("nothing is loaded") || err.contains("no counters"),
            "{verb:?}: {err}"
        );
    }
    assert!(!host.pin_dir().exists(), "looking makes nothing");
    assert_eq!(text(&host, &["status"]).0, Some(1));
}

#[test]
#[ignore = "requires root"]
fn the_doctor_sees_the_daemon_the_mode_and_what_is_foreign() {
    let host = Host::new("doctor");
    let findings = |arguments: &[&str]| {
        let (code, told) = json(&host, &[&["doctor"], arguments].concat());
        let findings = told["findings"].as_array().expect("a list").clone();
        let found = findings.into_iter().map(|it| {
            let text = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
            (text("check"), text("subject"), text("severity"), text("what"))
        });
        (code, found.collect::<Vec<_>>())
    };
    let severity = |found: &[(String, String, String, String)], check: &str, subject: &str| {
        let found = found.iter().find(|it| it.0 == check && it.1.contains(subject));
        found.map(|it| it.2.clone()).unwrap_or_default()
    };
    let daemon = host.start(&rules(FIVE));
    let (code, found) = findings(&[]);
    assert_eq!(code, Some(0), "{found:?}");
    assert_eq!(severity(&found, "daemon", ""), "ok");
    assert_eq!(severity(&found, "admin_socket", ""), "ok");
    assert_eq!(severity(&found, "xdp_mode", "eth0"), "ok");
    assert_eq!(severity(&found, "kernel", "host"), "ok");
    daemon.kill();
    let (code, found) = findings(&[]);
    assert_eq!((code, severity(&found, "daemon", "").as_str()), (Some(0), "warning"), "{found:?}");

    // With other pins, the program that runs is somebody else's.
    let file = host.file("other.yaml");
    let tagged = "rules: [{ name: guests, match: { vlan: 7 }, limits: [{ per: source, rate: 1/s }] }]";
    let text = format!("interfaces: [{{ name: eth0 }}, {{ name: eth9 }}]\nnetwork: {{ {tagged} }}\n");
    std::fs::write(&file, text).expect("a file");
    let other = host.pin_dir().with_file_name("other");
    let output = host
        .lab
        .server
        .command(env!("CARGO_BIN_EXE_ratelimit"))
        .args(["doctor", "--json", "--config"])
        .arg(&file)
        .arg("--pin-dir")
        .arg(other)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let problems: Vec<_> = told["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|finding| finding["severity"] == "problem")
        .map(|finding| (finding["check"].as_str().unwrap(), finding["subject"].as_str().unwrap()))
        .collect();
    assert_eq!(problems, [("interface", "eth9"), ("foreign_program", "eth0"), ("vlan_tags", "eth0")]);
}

#[test]
#[ignore = "requires root"]
fn a_user_without_privilege_is_told_what_is_missing() {
    let host = Host::new("user");
    let _daemon = host.start(&rules(FIVE));
    let mut command = host.lab.server.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(env!("CARGO_BIN_EXE_ratelimit")).args([
        "status",
        "--admin-socket",
        "/nonexistent/x",
        "--pin-dir",
    ]);
    command.arg(host.pin_dir());
    let Output { status, stderr, .. } = command.output().expect("setpriv");
    let err = String::from_utf8(stderr).expect("text");
    assert_eq!(status.code(), Some(3), "{err}");
    assert!(err.contains("root"), "{err}");
}

#[test]
#[ignore = "requires root"]
fn a_daemon_is_told_what_to_do() {
    let host = Host::new("daemon");
    let _daemon = host.start(&rules(FIVE));
    let mode = || json(&host, &["mode"]).1["mode"].clone();
    assert_eq!(mode(), "enforce");
    let (code, told) = json(&host, &["mode", "monitor"]);
    assert_eq!((code, &told["mode"], &told["changed"]), (Some(0), &"monitor".into(), &true.into()));
    assert_eq!(mode(), "monitor");
    assert_eq!(json(&host, &["mode", "enforce"]).1["changed"], true);
    assert_eq!(json(&host, &["reload"]).1["changed"], false);

    let (code, out, err) = text(&host, &["block", "192.0.2.0/24", "2001:db8::7", "--for", "10m"]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "blocked: 2 new\n", ""));
    assert_eq!(json(&host, &["blocks", "--origin", "command"]).1["blocks"].as_array().map(Vec::len), Some(2));
    let (code, _, err) = text(&host, &["block", "192.0.2.7/24"]);
    assert_eq!(code, Some(2), "{err}");
    let (code, told) = json(&host, &["unblock", "192.0.2.0/24", "192.0.2.9"]);
    assert_eq!((code, &told["removed"]), (Some(1), &Value::from(["192.0.2.0/24"].as_slice())));
    assert_eq!(told["not_blocked"], Value::from(["192.0.2.9/32"].as_slice()));

    let (code, out, err) = text(&host, &["events", "--limit", "100"]);
    assert_eq!(code, Some(0), "{err}");
    for words in ["mode_changed        monitor", "blocked", "192.0.2.0/24"] {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[test]
#[ignore = "requires root"]
fn a_policy_is_tried_confirmed_and_rolled_back() {
    let host = Host::new("trial");
    let _daemon = host.start(&rules(FIVE));
    let new = host.file("new.yaml");
    std::fs::write(&new, rules(&FIVE.replace("name: udp", "name: other"))).expect("a file");
    let new = new.to_str().expect("a path of this test");
    let rule = || json(&host, &["rules"]).1["rules"][0]["name"].clone();

    let (code, out, err) = text(&host, &["apply", new, "--confirm", "5m"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("ratelimit apply confirm"), "nobody is asked without a terminal: {out}");
    assert_eq!(rule(), "other");
    assert!(text(&host, &["status"]).1.contains("trial       on trial"));
    assert_eq!(text(&host, &["apply", "rollback"]).0, Some(0));
    assert_eq!(rule(), "udp");
    let (code, _, err) = text(&host, &["apply", "confirm"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("no policy is on trial"), "{err}");

    let (code, applied) = json(&host, &["apply", new, "--confirm", "5m"]);
    let id = applied["id"].as_str().expect("an id");
    assert_eq!((code, applied["deadline"].is_string()), (Some(0), true));
    assert_eq!(text(&host, &["apply", "confirm", id]).0, Some(0));
    assert_eq!((rule(), json(&host, &["status"]).1["trial"].clone()), ("other".into(), Value::Null));

    let (code, _, err) = text(&host, &["apply", "/nonexistent.yaml"]);
    assert_eq!(code, Some(2), "{err}");
    let wrong = host.file("wrong.yaml");
    std::fs::write(&wrong, "network: { ruls: [] }").expect("a file");
    let (code, _, err) = text(&host, &["apply", wrong.to_str().expect("a path of this test")]);
    assert_eq!(code, Some(1));
    assert!(err.contains("ruls"), "{err}");
    assert_eq!(rule(), "other");
}
