//! Envoy's rate-limit service as a client meets it that somebody else generated from Envoy's protobufs
//! (`http_envoy/client.py`), and as hostile clients leave it.

#[path = "http_envoy/server.rs"]
mod server;

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    process::{Command, Output},
    sync::LazyLock,
    time::Duration,
};

use server::Server;
use xtask::{setup, workspace::Workspace};

/// The interpreter that has the client.
static PYTHON: LazyLock<std::path::PathBuf> =
    LazyLock::new(|| setup::python(&Workspace::load().unwrap()).unwrap());

/// Has the client put a case to a server.
fn ask(server: &Server, case: &str) {
    let mut client = Command::new(&*PYTHON);
    client.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http_envoy/client.py"));
    client.args([server.address().as_str(), case]);
    let Output { status, stdout, stderr } = client.output().unwrap();
    let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{case}: {said}");
}

fn passes(case: &str) {
    ask(&Server::on_tcp(), case);
}

#[test]
fn each_descriptor_has_a_status() {
    passes("statuses");
}

#[test]
fn a_refusal_has_headers_and_a_body() {
    passes("over_limit");
}

#[test]
fn an_answer_that_passes_tells_the_quota_alone() {
    passes("allowed_headers");
}

#[test]
fn hits_are_the_descriptors_own_else_the_requests() {
    passes("hits");
}

#[test]
fn a_limit_of_its_own_holds_and_a_unit_that_is_none_is_refused() {
    passes("overrides");
}

#[test]
fn what_cannot_be_decided_is_refused_and_the_next_request_is_served() {
    passes("mistakes");
}

#[test]
fn a_huge_message_is_refused_and_the_next_request_is_served() {
    passes("large");
}

#[test]
fn thousands_of_requests_at_once_are_all_decided() {
    passes("many_at_once");
}

#[test]
fn exactly_one_of_many_gets_the_last_unit() {
    passes("last_unit");
}

#[test]
fn health_is_told_in_grpcs_own_words() {
    passes("health");
}

#[test]
fn a_unix_socket_serves_the_same() {
    let server = Server::on_unix();
    for case in ["statuses", "overrides", "health"] {
        ask(&server, case);
    }
}

#[test]
fn hostile_clients_leave_it_serving_others() {
    let server = Server::on_tcp();
    let connect = || {
        let stream = TcpStream::connect(server.tcp()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    // Some hundreds that say nothing, or only the first bytes of the preface, and stay.
    let silent: Vec<TcpStream> = (0..300)
        .map(|number| {
            let mut stream = connect();
            stream.write_all(&b"PRI * HTTP/2.0\r\n"[..number % 16]).unwrap();
            stream
        })
        .collect();
    // Some that say something else: all of them are closed.
    let garbage: Vec<u8> = (0..100_000u32).map(|number| (number * 7_919 % 251) as u8).collect();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let broken = [preface, &garbage[..]].concat();
    for bytes in [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &garbage[..], &broken] {
        let mut stream = connect();
        // It may be closed before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
    // Some that leave in the middle of a frame.
    for length in 0..40 {
        let mut stream = connect();
        stream.write_all(&[preface, &[0, 0, 100, 1, 4, 0, 0, 0, 1][..]].concat()[..length.min(33)]).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }
    for case in ["statuses", "health"] {
        ask(&server, case);
    }
    drop(silent);
}
