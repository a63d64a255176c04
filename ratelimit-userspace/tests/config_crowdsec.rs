//! `blocks.crowdsec`, and the file that it names.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use ratelimit::config::{
    self, Failure,
    diagnostic::Code,
    policy::{Blocks, CrowdSec},
};
use tempfile::TempDir;

/// A rules file with this `blocks`, beside a good key file and one that everybody can read.
fn files(blocks: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    for (name, mode) in [("key", 0o600), ("exposed", 0o644)] {
        let path = directory.path().join(name);
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let path = directory.path().join("rules.yaml");
    fs::write(&path, format!("interfaces: {{ name: eth0 }}\nnetwork:\n  blocks: {blocks}\n")).unwrap();
    (directory, path)
}

fn blocks(text: &str) -> (TempDir, Blocks) {
    let (directory, path) = files(text);
    let loaded = config::load(&path).unwrap_or_else(|failure| panic!("{text}\n{failure}"));
    (directory, loaded.config.network.unwrap().blocks)
}

/// The one error, which stands at the mark.
#[track_caller]
fn refused(blocks: &str, code: Code) {
    let column = "  blocks: ".len() + blocks.find('«').expect("a mark") + 1;
    let (_directory, path) = files(&blocks.replace('«', ""));
    let Err(Failure::Invalid { errors, .. }) = config::load(&path) else { panic!("{blocks} is valid") };
    let [error] = &errors[..] else { panic!("{blocks}\n{errors:#?}") };
    let place = (error.line, error.column.map(|column| column as usize));
    assert_eq!((error.code, place), (code, (Some(3), Some(column))), "{blocks}\n{error}");
    assert!(error.expected.is_some(), "{blocks}\n{error}");
}

#[test]
fn values() {
    let (directory, all) = blocks(
        "{ capacity: 2048, crowdsec: { url: \"http://lapi:8080/cs/\", api_key_file: key, every: 30s } }",
    );
    let wanted = CrowdSec {
        url: "http://lapi:8080/cs".to_owned(),
        api_key_file: directory.path().join("key"),
        every: Duration::from_secs(30),
    };
    assert_eq!((wanted.host(), wanted.path()), ("lapi:8080", "/cs"));
    assert_eq!(all, Blocks { capacity: 2048, crowdsec: Some(wanted) });
    let (_directory, short) = blocks("{ crowdsec: { url: \"http://[::1]:8080\", api_key_file: key } }");
    let crowdsec = short.crowdsec.unwrap();
    assert_eq!(
        (crowdsec.host(), crowdsec.path(), crowdsec.every),
        ("[::1]:8080", "", Duration::from_secs(10))
    );
    assert_eq!(short.capacity, Blocks::default().capacity);
}

#[test]
fn mistakes() {
    for (blocks, code) in [
        ("{ crowdsec: { url: «https://127.0.0.1:8080, api_key_file: key } }", Code::BadValue),
        ("{ crowdsec: { url: «127.0.0.1:8080, api_key_file: key } }", Code::BadValue),
        ("{ crowdsec: { url: «http://127.0.0.1, api_key_file: key } }", Code::BadValue),
        ("{ crowdsec: { url: «http://me@127.0.0.1:1, api_key_file: key } }", Code::BadValue),
        ("{ crowdsec: { url: «\"http://127.0.0.1:1/?a=b\", api_key_file: key } }", Code::BadValue),
        ("{ crowdsec: { url: «\"http://127.0.0.1:1/#a\", api_key_file: key } }", Code::BadValue),
        ("{ crowdsec: { url: http://127.0.0.1:8080, api_key_file: «nowhere } }", Code::UnreadableFile),
        ("{ crowdsec: { url: http://127.0.0.1:8080, api_key_file: «exposed } }", Code::ExposedToken),
        ("{ crowdsec: { url: http://127.0.0.1:8080, api_key_file: key, every: «0s } }", Code::OutOfRange),
        ("{ crowdsec: { url: http://127.0.0.1:8080, api_key_file: key, every: «2h } }", Code::OutOfRange),
        ("{ crowdsec: { url: http://127.0.0.1:8080, api_key_file: key, «evry: 1s } }", Code::UnknownKey),
        ("{ crowdsec: «{ api_key_file: key } }", Code::MissingKey),
        ("{ crowdsec: «{ url: http://127.0.0.1:8080 } }", Code::MissingKey),
        ("{ crowdsec: «true }", Code::BadType),
    ] {
        refused(blocks, code);
    }
}
