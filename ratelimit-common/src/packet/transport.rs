//! TCP, UDP and SCTP: whatever has ports.
//!
//! Called only for whole datagrams and first fragments. In a first fragment the header must be whole
//! (RFC 7112 asks that of IPv6, RFC 1858 of TCP over IPv4), but what the header says of the rest of the
//! datagram cannot be compared with what is there.

use super::{Fragment, Frame, Packet, Payload, be16, header};
use crate::record::Reason;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// The TCP header without options.
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
/// The common header, before the first chunk.
const SCTP_HEADER: usize = 12;

/// Reads the transport header that `protocol` says the payload starts with.
#[inline(always)]
pub(super) fn parse<F: Frame>(frame: &F, payload: &Payload, protocol: u8, packet: &mut Packet) {
    match protocol {
        TCP => tcp(frame, payload, packet),
        UDP => udp(frame, payload, packet),
        SCTP => sctp(frame, payload, packet),
        _ => {}
    }
}

#[inline(always)]
fn tcp<F: Frame>(frame: &F, payload: &Payload, packet: &mut Packet) {
    let tcp: [u8; TCP_HEADER] = match header(frame, payload.offset, payload.end) {
        Ok(tcp) => tcp,
        Err(missing) => return packet.lacks(missing, Reason::MalformedTcp),
    };
    let length = usize::from(tcp[12] >> 4) * 4;
    if length < TCP_HEADER || exceeds(length, payload, packet) {
        packet.malformed = Some(Reason::MalformedTcp);
        return;
    }
    packet.tcp_flags = u32::from(tcp[13]);
    ports(&tcp, packet);
}

#[inline(always)]
fn udp<F: Frame>(frame: &F, payload: &Payload, packet: &mut Packet) {
    let udp: [u8; UDP_HEADER] = match header(frame, payload.offset, payload.end) {
        Ok(udp) => udp,
        Err(missing) => return packet.lacks(missing, Reason::MalformedUdp),
    };
    let length = usize::from(be16(&udp, 4));
    let unstated = length == 0 && payload.jumbo;
    if !unstated && (length < UDP_HEADER || exceeds(length, payload, packet)) {
        packet.malformed = Some(Reason::MalformedUdp);
        return;
    }
    ports(&udp, packet);
}

#[inline(always)]
fn sctp<F: Frame>(frame: &F, payload: &Payload, packet: &mut Packet) {
    match header::<F, SCTP_HEADER>(frame, payload.offset, payload.end) {
        Ok(sctp) => ports(&sctp, packet),
        Err(missing) => packet.lacks(missing, Reason::MalformedSctp),
    }
}

/// All three start with the source and the destination port.
#[inline(always)]
fn ports<const N: usize>(header: &[u8; N], packet: &mut Packet) {
    packet.source_port = u32::from(be16(header, 0));
    packet.destination_port = u32::from(be16(header, 2));
}

/// Whether a whole datagram is too short for `length` bytes of transport.
#[inline(always)]
fn exceeds(length: usize, payload: &Payload, packet: &Packet) -> bool {
    matches!(packet.fragment, Fragment::None) && payload.offset + length > payload.end
}
