use std::{fs, io::Write as _};

use super::*;

fn open(bytes: &[u8]) -> Result<Recording, CaptureError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recording");
    fs::write(&path, bytes).unwrap();
    Recording::open(&path)
}

fn pcap_header(magic: u32) -> [Vec<u8>; 2] {
    let header = |magic: [u8; 4], number: fn(u32) -> [u8; 4]| {
        // Version 2.4, whose two halves are one number here.
        let version = if number(1)[0] == 1 { 0x0004_0002 } else { 0x0002_0004 };
        [magic, number(version), number(0), number(0), number(65_535), number(1)].concat()
    };
    [header(magic.to_le_bytes(), u32::to_le_bytes), header(magic.to_be_bytes(), u32::to_be_bytes)]
}

#[test]
fn captures_are_told_by_their_first_bytes() {
    for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
        for header in pcap_header(magic) {
            assert!(matches!(open(&header), Ok(Recording::Packets(_))), "{magic:x}");
            // It is a capture all the same.
            assert!(matches!(open(&header[..10]), Err(CaptureError::NotACapture { .. })), "{magic:x}");
        }
    }
    let [rare, _] = pcap_header(0xa1b2_cd34);
    assert!(matches!(open(&rare), Ok(Recording::Packets(_))));
    assert!(matches!(open(&[0x0a, 0x0d, 0x0d, 0x0a, 0]), Err(CaptureError::NotACapture { .. })));
}

#[test]
fn a_trace_starts_with_an_object_or_is_empty() {
    for text in ["", "\n \r\n", "{", "\n  {\"t\":1}"] {
        assert!(matches!(open(text.as_bytes()), Ok(Recording::Requests(_))), "{text}");
    }
    for junk in ["rules:\n", "[1]", "\u{0}", "\u{feff}{}"] {
        let error = open(junk.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("neither a capture") && error.contains("nor a trace"), "{error}");
    }
}

#[test]
fn a_trace_is_read_from_its_beginning() {
    let line = format!("{{\"t\":1,\"domain\":\"{}\"}}\n", "a".repeat(5000));
    let Ok(Recording::Requests(mut trace)) = open(format!("{line}{{\"t\":2}}").as_bytes()) else {
        panic!("a trace");
    };
    let mut times = Vec::new();
    while let Some(line) = trace.next_line().unwrap() {
        times.push(line.time.nanos());
    }
    assert_eq!(times, [1_000_000_000, 2_000_000_000]);
}

#[test]
fn a_pipe_is_read_whatever_comes_at_once() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    let writing = std::thread::spawn(move || {
        for part in ["  ", "{\"t\"", ":1}\n{\"t\":2}"] {
            writer.write_all(part.as_bytes()).unwrap();
        }
    });
    let Ok(Recording::Requests(mut trace)) = Recording::open(Path::new(&path)) else { panic!("a trace") };
    drop(reader);
    writing.join().unwrap();
    assert_eq!(trace.next_line().unwrap().unwrap().time.nanos(), 1_000_000_000);
    assert_eq!(trace.next_line().unwrap().unwrap().time.nanos(), 2_000_000_000);
    assert!(trace.next_line().unwrap().is_none());
}

#[test]
fn what_cannot_be_opened_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("missing")] {
        let error = Recording::open(&path).unwrap_err();
        assert!(matches!(error, CaptureError::Open { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}
