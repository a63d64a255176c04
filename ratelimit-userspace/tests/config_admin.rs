//! The `admin` section, and the files that it names.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use ratelimit::config::{
    self, Failure, Loaded,
    diagnostic::{Code, Diagnostic},
    policy::Admin,
};
use tempfile::TempDir;

/// A rules file with this `admin` section, beside two good token files.
fn files(admin: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    for (name, token) in [("look", "0123456789abcdef"), ("change", "fedcba9876543210")] {
        write(&directory.path().join(name), token, 0o640);
    }
    let path = directory.path().join("rules.yaml");
    fs::write(&path, format!("admin: {admin}\n")).unwrap();
    (directory, path)
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn loaded(admin: &str) -> (TempDir, PathBuf, Loaded) {
    let (directory, path) = files(admin);
    let loaded = config::load(&path).unwrap_or_else(|failure| panic!("{admin}\n{failure}"));
    (directory, path, loaded)
}

/// The one error, which stands at the mark.
#[track_caller]
fn refused(admin: &str, code: Code, nearest: Option<&str>) -> Diagnostic {
    let column = "admin: ".len() + admin.find('«').expect("a mark") + 1;
    let (_directory, path) = files(&admin.replace('«', ""));
    let Err(Failure::Invalid { errors, .. }) = config::load(&path) else { panic!("{admin} is valid") };
    let [error] = &errors[..] else { panic!("{admin}\n{errors:#?}") };
    let place = (error.line, error.column.map(|column| column as usize));
    assert_eq!((error.code, place), (code, (Some(1), Some(column))), "{admin}\n{error}");
    assert_eq!(error.nearest.as_deref(), nearest, "{admin}\n{error}");
    assert!(error.expected.is_some(), "{admin}\n{error}");
    error.clone()
}

#[test]
fn values() {
    let (directory, path, Loaded { config, warnings }) =
        loaded("{ listen: 127.0.0.1:9100, token_file: look, write_token_file: change }");
    let [look, change] = ["look", "change"].map(|name| directory.path().join(name));
    let wanted = Admin {
        listen: Some("127.0.0.1:9100".parse().unwrap()),
        token_file: Some(look.clone()),
        write_token_file: Some(change.clone()),
    };
    assert_eq!((&config.admin, warnings), (&wanted, vec![]));
    // A token that is changed is a reason to look, too.
    assert_eq!(config.files(&path), [path.clone(), look, change]);
    for listen in ["\"[::1]:9100\"", "127.255.0.1:1", "\"[::ffff:127.0.0.1]:9100\""] {
        let (_, _, Loaded { config, .. }) =
            loaded(&format!("{{ listen: {listen}, write_token_file: change }}"));
        assert_eq!(config.admin.listen, Some(listen.trim_matches('"').parse().unwrap()));
        assert_eq!(config.admin.token_file, None);
    }
    assert_eq!(loaded("{}").2.config.admin, Admin::default());
}

#[test]
fn other_hosts_never_reach_it() {
    let there = |listen: &str, nearest: &str| {
        let error =
            refused(&format!("{{ listen: «{listen}, token_file: look }}"), Code::BadAddress, Some(nearest));
        let Diagnostic { message, expected, .. } = error;
        assert!(
            message.contains("other hosts reach") && expected.as_ref().unwrap().contains("SSH"),
            "{message}"
        );
    };
    there("0.0.0.0:9100", "127.0.0.1:9100");
    there("192.0.2.1:9100", "127.0.0.1:9100");
    there("\"[::]:9100\"", "[::1]:9100");
    there("\"[2001:db8::1]:9100\"", "[::1]:9100");
    there("\"[::ffff:192.0.2.1]:9100\"", "[::1]:9100");
    there("\"[fe80::1%1]:9100\"", "[::1]:9100");
    let text = "{ listen: «9100, token_file: look }";
    refused(text, Code::BadAddress, Some("127.0.0.1:9100"));
    refused("{ listen: «localhost:9100, token_file: look }", Code::BadAddress, Some("127.0.0.1:9100"));
    refused("{ listen: «\"*:9100\", token_file: look }", Code::BadAddress, Some("127.0.0.1:9100"));
    refused("{ listen: «127.0.0.1, token_file: look }", Code::BadAddress, None);
    refused("{ listen: «unix:admin.sock, token_file: look }", Code::BadAddress, None);
    refused("{ listen: «\"\", token_file: look }", Code::BadAddress, None);
}

#[test]
fn every_asker_over_tcp_has_a_token() {
    refused("{ listen: «127.0.0.1:9100 }", Code::MissingKey, None);
    // What is misspelt is not also missing.
    refused("{ listen: 127.0.0.1:9100, «tokenfile: look }", Code::UnknownKey, Some("token_file"));
    refused("{ «listn: 127.0.0.1:9100, token_file: look }", Code::UnknownKey, Some("listen"));
    refused("{ listen: 127.0.0.1:9100, token_file: look, «write_token_file: look }", Code::Conflict, None);
    refused("{ listen: 127.0.0.1:9100, token_file: «none }", Code::UnreadableFile, None);
    let (directory, path) = files("{ listen: 127.0.0.1:9100, token_file: token }");
    for (token, mode, code) in [
        ("0123456789abcdef", 0o644, Code::ExposedToken),
        ("0123456789abcde", 0o600, Code::BadValue),
        ("0123456789 abcdef0123", 0o600, Code::BadValue),
    ] {
        write(&directory.path().join("token"), token, mode);
        let Err(Failure::Invalid { errors, .. }) = config::load(&path) else { panic!("{token} is taken") };
        assert_eq!(errors.iter().map(|error| error.code).collect::<Vec<_>>(), [code], "{token}");
        assert!(!errors[0].to_string().contains("0123456789"), "{}", errors[0]);
    }
}

#[test]
fn tokens_without_an_address_change_nothing() {
    let (_, _, Loaded { warnings, .. }) = loaded("{ write_token_file: change }");
    let found: Vec<_> = warnings.iter().map(|warning| (warning.code, warning.column)).collect();
    assert_eq!(found, [(Code::NoEffect, Some(10))]);
}

#[test]
fn an_address_is_for_one() {
    let rules = "domain: a\ndescriptors: { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }\n";
    for (http, admin, refused) in [
        ("listen: 127.0.0.1:9100", "127.0.0.1:9100", true),
        ("listen: 127.0.0.1:8081, grpc_listen: 127.0.0.1:9100", "127.0.0.1:9100", true),
        ("listen: 127.0.0.1:8081", "127.0.0.1:9100", false),
        ("listen: 127.0.0.1:0", "127.0.0.1:0", false),
    ] {
        let (directory, path) = files("");
        fs::write(directory.path().join("api.yaml"), rules).unwrap();
        let admin = format!("{{ listen: {admin}, token_file: look }}");
        fs::write(&path, format!("http: {{ {http}, rules: api.yaml }}\nadmin: {admin}\n")).unwrap();
        match config::load(&path) {
            Ok(_) => assert!(!refused, "{http}"),
            Err(Failure::Invalid { errors, .. }) => {
                let found: Vec<_> = errors.iter().map(|error| (error.code, error.line)).collect();
                assert!(refused && found == [(Code::Conflict, Some(2))], "{http} {errors:#?}");
            }
            Err(failure) => panic!("{failure}"),
        }
    }
}
