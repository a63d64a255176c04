//! The laboratory itself, on real namespaces.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    thread,
    time::Duration,
};

use super::*;

const PORT: u16 = 9;
const PATIENCE: Duration = Duration::from_secs(10);

fn receiver(lab: &Lab, address: IpAddr) -> UdpSocket {
    lab.server.run(|| {
        let socket = UdpSocket::bind((address, PORT)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    })
}

fn plan(frames: Vec<Vec<u8>>, packets: u64) -> Plan {
    Plan { frames, duration: PATIENCE, packets: Some(packets), rate: Some(10_000), cpu: None }
}

#[test]
#[ignore = "requires root"]
fn sockets_of_both_families_cross_the_wire() {
    let lab = Lab::new("cross").unwrap();
    for address in [IpAddr::from(lab.link.server.ipv4), lab.link.server.ipv6.into()] {
        let receiver = receiver(&lab, address);
        lab.client.run(|| {
            let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
            UdpSocket::bind((any, 0)).unwrap().send_to(b"hello", (address, PORT)).unwrap();
        });
        let mut buffer = [0; 16];
        let (length, _) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"hello");
    }
}

#[test]
#[ignore = "requires root"]
fn a_flood_arrives_from_every_source_in_turn() {
    let lab = Lab::new("flood").unwrap();
    let cases: [(Route, Vec<IpAddr>); 2] =
        [(lab.route_v4(), frame::sources_v4(3).collect()), (lab.route_v6(), frame::sources_v6(3).collect())];
    for (route, sources) in cases {
        let receiver = receiver(&lab, route.destination);
        let frames = sources.iter().map(|&source| route.udp(source, 5, PORT, b"x")).collect();
        assert_eq!(lab.flood(plan(frames, 7)).unwrap().wait().unwrap(), 7);
        for number in 0..7 {
            let (_, from) = receiver.recv_from(&mut [0; 16]).unwrap();
            assert_eq!(from, SocketAddr::new(sources[number % 3], 5));
        }
    }
}

#[test]
#[ignore = "requires root"]
fn stopping_a_flood_ends_it_before_its_bounds() {
    let lab = Lab::new("stop").unwrap();
    let frame = lab.route_v4().echo(lab.link.client.ipv4.into(), 1, 1, &[]);
    let flood = lab.flood(Plan { packets: None, ..plan(vec![frame], 0) }).unwrap();
    while flood.offered() == 0 {
        assert!(!flood.is_finished());
    }
    assert!(flood.stop().unwrap() > 0);
}

#[test]
#[ignore = "requires root"]
fn nothing_is_left_when_the_guards_go() {
    let lab = Lab::new("gone").unwrap();
    let path = lab.server.path();
    let bpffs = BpfFs::mount().unwrap();
    let mounted = bpffs.path().to_owned();
    let process = Process::spawn(lab.server.command("sleep").arg("1000")).unwrap();
    let pid = format!("/proc/{}", process.id());
    assert!(path.exists() && mounted.exists() && Path::new(&pid).exists());
    drop((process, bpffs, lab));
    assert!(!path.exists() && !mounted.exists() && !Path::new(&pid).exists());
}

#[test]
#[ignore = "requires root"]
fn a_receiving_thread_does_the_receiving() {
    let lab = Lab::new("napi").unwrap();
    lab.queue_at_server().unwrap();
    let napi = NapiThread::start(&lab.server, &lab.link.server.device).unwrap();
    napi.pin(0).unwrap();
    napi.prioritise().unwrap();
    let before = napi.run_time().unwrap();
    let receiver = receiver(&lab, lab.link.server.ipv4.into());
    let frame = lab.route_v4().udp(lab.link.client.ipv4.into(), 5, PORT, b"x");
    lab.flood(plan(vec![frame], 10)).unwrap().wait().unwrap();
    for _ in 0..10 {
        receiver.recv_from(&mut [0; 16]).unwrap();
    }
    // The kernel accounts for a thread when it leaves the CPU, which may be after the last datagram.
    let accounted = (0..1000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        napi.run_time().unwrap() > before
    });
    assert!(accounted);
}

#[test]
fn a_failed_command_says_what_it_was_and_why() {
    let error = capture(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("exit 3") && text.contains("broken"), "{text}");
}
