//! Samples: who sends how much, and records of refused packets.

use aya_ebpf::bindings::BPF_NOEXIST;
use ratelimit_common::{
    address::Family,
    record::Event,
    sample::{Refused, Source, Talker, Traffic, family_number},
    sampler::spread,
};

use crate::{
    atomic::AtomicWord,
    constants, maps,
    verdict::{Verdict, count_event},
    xdp_frame::{XdpFrame, nanos},
};

// What is told of a sample, beside the number of its reason.

/// It is an IP packet, whose addresses were read.
const IS_PACKET: u64 = 1 << 32;
/// It is refused.
const REFUSED: u64 = 1 << 33;
/// It passes all the same, because something monitors.
const MONITORED: u64 = 1 << 34;

/// Accounts a packet if it is a sample.
#[inline(always)]
pub(crate) fn look(frame: &XdpFrame, verdict: &Verdict, is_packet: bool, monitored: bool) {
    let Some(sampler) = maps::SAMPLER.get_ptr_mut(0) else { return };
    // SAFETY: the pointer is this CPU's slot of a per-CPU array, and XDP programs of one CPU do not
    // interrupt each other, so nothing else reaches it meanwhile.
    if unsafe { (*sampler).is_due() } {
        let flag = |flag, condition| if condition { flag } else { 0 };
        let about = u64::from(verdict.reason)
            | flag(IS_PACKET, is_packet)
            | flag(REFUSED, verdict.refused)
            | flag(MONITORED, monitored);
        take_sample(about, verdict.counter_slot(), verdict.limit, frame.length, frame.interface());
    }
}

/// Accounts the packet at hand, which is a sample.
///
/// A function that the verifier follows once: see [`crate::steps`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn take_sample(about: u64, counter_slot: u32, limit: u32, length: u64, interface: u32) -> u64 {
    let now = nanos();
    let Some(sampler) = maps::SAMPLER.get_ptr_mut(0) else { return 0 };
    // SAFETY: as in `look`.
    let weight = unsafe { (*sampler).draw(now) };
    if about & IS_PACKET != 0 {
        account(about, weight, length, now);
    }
    if about & REFUSED != 0 {
        let by = u64::from(counter_slot) << 32 | u64::from(limit);
        tell(about, weight, now, by, length << 32 | u64::from(interface));
    }
    0
}

/// Adds a sample to what is known of its source.
///
/// A function of its own, as [`tell`] is, so that the two have their stacks in the same place: up to Linux 6.5
/// the verifier counts each of a chain of calls in steps of 32 bytes.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn account(about: u64, weight: u64, length: u64, now: u64) -> u64 {
    let Some(packet) = maps::packet_at_hand() else { return 0 };
    let refused = about & REFUSED != 0;
    let bits = match packet.source.family {
        Family::V4 => constants::SOURCE_BITS_V4.load(),
        Family::V6 => constants::SOURCE_BITS_V6.load(),
    };
    let source = Source::of(&packet.source, bits);
    if add(&source, refused, weight, length, now) {
        return 0;
    }
    let of = |counts: bool| {
        let weight = if counts { weight } else { 0 };
        let (packets, bytes, variance) = (weight, weight * length, if counts { spread(weight) } else { 0 });
        Traffic {
            packets: AtomicWord::new(packets),
            bytes: AtomicWord::new(bytes),
            variance: AtomicWord::new(variance),
        }
    };
    let talker = Talker {
        passed: of(!refused),
        shed: of(refused),
        first_seen: AtomicWord::new(now),
        last_seen: AtomicWord::new(now),
    };
    if maps::TALKERS_BY_SOURCE.insert(source, &talker, u64::from(BPF_NOEXIST)).is_err() {
        // Another CPU was first.
        add(&source, refused, weight, length, now);
    }
    0
}

/// Adds a sample to a source that is known; whether it is.
#[inline(always)]
fn add(source: &Source, refused: bool, weight: u64, length: u64, now: u64) -> bool {
    let Some(talker) = maps::TALKERS_BY_SOURCE.get_ptr(source) else { return false };
    // SAFETY: the entry's memory stays while the program runs, and all of it is words that are changed
    // atomically. If it is given to another source meanwhile, that one gets the sample.
    let talker = unsafe { &*talker };
    talker.add(refused, weight, length, now);
    true
}

/// Writes a record of a refused packet, unless there were enough of its kind. `by` is the counter slot of the
/// rule and, in the lower half, the limit; `frame` the length and the interface.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn tell(about: u64, weight: u64, now: u64, by: u64, frame: u64) -> u64 {
    let Some(budget) = maps::SAMPLE_BUDGET.get_ptr_mut(about as u32) else { return 0 };
    // SAFETY: as in `look`.
    let budget = unsafe { &mut *budget };
    let Some(weight) = budget.spend(weight, now) else { return 0 };
    let mut refused = Refused {
        time: now,
        weight,
        source: [0; 2],
        destination: [0; 2],
        length: (frame >> 32) as u32,
        interface: frame as u32,
        reason: about as u32,
        counter_slot: (by >> 32) as u32,
        limit: by as u32,
        shed: u32::from(about & MONITORED == 0),
        family: 0,
        protocol: 0,
        source_port: 0,
        destination_port: 0,
    };
    if about & IS_PACKET != 0
        && let Some(packet) = maps::packet_at_hand()
    {
        refused.family = family_number(packet.source.family);
        refused.source = [packet.source.high, packet.source.low];
        refused.destination = [packet.destination.high, packet.destination.low];
        refused.protocol = packet.protocol;
        refused.source_port = packet.source_port;
        refused.destination_port = packet.destination_port;
    }
    if let Some(mut record) = maps::SAMPLES.reserve_untyped::<Refused>(0) {
        record.write(refused);
        // The reader is woken if it has read all that was before.
        record.submit(0);
    } else {
        budget.return_untold(weight);
        count_event(Event::SamplesLost, 1);
    }
    0
}
