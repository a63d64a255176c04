//! Arbitrary bytes through the parser, as a whole frame and cut at every length, with `etherparse` as oracle.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratelimit_common::packet::{Parsed, parse};

#[path = "../oracle.rs"]
mod oracle;

fuzz_target!(|data: &[u8]| {
    oracle::compare(data);
    for readable in 0..data.len().min(256) {
        let frame = oracle::Bytes { data: &data[..readable], length: data.len() };
        // What cannot be read is never held against the packet; what was read before counts.
        if let Parsed::Ip(packet) = parse(&frame) {
            assert!(packet.malformed.is_none() || !packet.cut);
        }
    }
});
