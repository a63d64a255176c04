use std::{io::ErrorKind, os::unix::net::UnixListener as StdListener};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::*;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn a_unix_socket_is_for_owner_and_group_and_goes_with_its_listener() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    let listener = Listener::bind(&Listen::Unix(path.clone())).unwrap();
    assert_eq!(mode(&path), SOCKET_MODE);
    let (client, connection) = tokio::join!(UnixStream::connect(&path), listener.accept());
    assert_eq!(connection.peer(), Peer::Unix);
    let (mut client, mut connection) = (client.unwrap(), connection);
    client.write_all(b"to and fro").await.unwrap();
    client.shutdown().await.unwrap();
    let mut text = String::new();
    timeout(PATIENCE, connection.read_to_string(&mut text)).await.unwrap().unwrap();
    assert_eq!(text, "to and fro");
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn the_socket_of_a_dead_process_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    drop(StdListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind(&Listen::Unix(path.clone())).unwrap();
    let (client, _connection) = tokio::join!(UnixStream::connect(&path), listener.accept());
    client.unwrap();
}

#[tokio::test]
async fn the_socket_of_a_live_process_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    let live = Listener::bind(&Listen::Unix(path.clone())).unwrap();
    let error = Listener::bind(&Listen::Unix(path.clone())).unwrap_err();
    assert!(matches!(error, ListenError::InUse(_)), "{error}");
    let (client, _connection) = tokio::join!(UnixStream::connect(&path), live.accept());
    client.unwrap();
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (file, link) = (directory.path().join("precious"), directory.path().join("link"));
    fs::write(&file, "kept").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link, &directory.path().to_owned()] {
        let error = Listener::bind(&Listen::Unix(path.clone())).unwrap_err();
        assert!(matches!(error, ListenError::NotASocket(_)), "{error}");
    }
    assert_eq!(fs::read_to_string(link).unwrap(), "kept");
}

#[tokio::test]
async fn a_socket_that_another_process_put_there_since_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    let listener = Listener::bind(&Listen::Unix(path.clone())).unwrap();
    fs::rename(&path, directory.path().join("moved")).unwrap();
    let _other = StdListener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let first = Listener::bind(&Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = first.local_address().unwrap();
    let error = Listener::bind(&Listen::Tcp(address)).unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn a_peer_that_is_mapped_to_ipv6_shows_as_ipv4() {
    let listener = Listener::bind(&Listen::Tcp("[::]:0".parse().unwrap())).unwrap();
    let port = listener.local_address().unwrap().port();
    let (client, connection) = tokio::join!(TcpStream::connect(("127.0.0.1", port)), listener.accept());
    client.unwrap();
    assert_eq!(connection.peer(), Peer::Address("127.0.0.1".parse().unwrap()));
}

#[tokio::test]
async fn a_full_listener_accepts_again_when_a_connection_ends() {
    let listener = Listener::bind(&Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = listener.local_address().unwrap();
    let others = listener.slots.clone().try_acquire_many_owned(u32::try_from(MAX_CONNECTIONS - 1).unwrap());
    let (_first, held) = tokio::join!(TcpStream::connect(address), listener.accept());
    let _second = TcpStream::connect(address).await.unwrap();
    let mut next = Box::pin(listener.accept());
    let none = timeout(Duration::ZERO, next.as_mut()).await;
    assert!(none.is_err(), "accepted one more than there is room for");
    drop(held);
    drop(timeout(PATIENCE, next.as_mut()).await.expect("accepts again"));
    drop(next);
    drop(others);
    timeout(PATIENCE, listener.close()).await.expect("no connection is left");
}

#[test]
fn being_out_of_descriptors_is_waited_for_and_a_lost_client_is_not() {
    for code in [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOBUFS] {
        assert!(!is_the_connections_own(&code.into()), "{code}");
    }
    assert!(is_the_connections_own(&io::Error::from(ErrorKind::ConnectionAborted)));
}
