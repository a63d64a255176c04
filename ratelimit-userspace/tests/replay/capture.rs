//! Captures, written byte by byte: pcap and pcapng in either byte order and any time resolution.

use std::iter;

pub(crate) const ETHERNET: u16 = 1;

/// A byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

/// What was captured of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) nanos: u64,
    pub(crate) data: Vec<u8>,
    /// Its length on the wire.
    pub(crate) length: u32,
}

/// A pcapng file in the making.
pub(crate) struct PcapNg {
    order: Order,
    bytes: Vec<u8>,
}

// === impl Order ===

impl Order {
    fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }
}

// === impl Record ===

impl Record {
    /// A frame that is captured whole.
    pub(crate) fn whole(nanos: u64, data: Vec<u8>) -> Self {
        let length = u32::try_from(data.len()).expect("it is short");
        Self { nanos, data, length }
    }

    /// The first bytes of a frame.
    pub(crate) fn cut(nanos: u64, data: &[u8], snap_length: usize) -> Self {
        let length = u32::try_from(data.len()).expect("it is short");
        Self { nanos, data: data[..snap_length].to_vec(), length }
    }

    fn captured(&self) -> u32 {
        u32::try_from(self.data.len()).expect("it is short")
    }
}

/// The header of a pcap file.
pub(crate) fn pcap_header(order: Order, has_nanos: bool, link_type: u16) -> Vec<u8> {
    // draft-ietf-opsawg-pcap: magic, version 2.4, two reserved fields, snap length, link type.
    let magic = if has_nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut bytes = order.u32(magic).to_vec();
    bytes.extend([order.u16(2), order.u16(4)].concat());
    bytes.extend([0, 0, 262_144, u32::from(link_type)].map(|field| order.u32(field)).concat());
    bytes
}

/// One packet of a pcap file.
pub(crate) fn pcap_record(order: Order, has_nanos: bool, record: &Record) -> Vec<u8> {
    let seconds = u32::try_from(record.nanos / 1_000_000_000).expect("before 2106");
    let fraction = record.nanos % 1_000_000_000 / if has_nanos { 1 } else { 1000 };
    let fraction = u32::try_from(fraction).expect("below a second");
    let fields = [seconds, fraction, record.captured(), record.length];
    [fields.map(|field| order.u32(field)).concat(), record.data.clone()].concat()
}

/// A pcap file of Ethernet frames.
pub(crate) fn pcap(order: Order, has_nanos: bool, records: &[Record]) -> Vec<u8> {
    let records = records.iter().map(|record| pcap_record(order, has_nanos, record));
    iter::once(pcap_header(order, has_nanos, ETHERNET)).chain(records).collect::<Vec<_>>().concat()
}

// === impl PcapNg ===

impl PcapNg {
    /// A file, or a new section of one.
    pub(crate) fn new(order: Order) -> Self {
        let mut file = Self { order, bytes: Vec::new() };
        // draft-ietf-opsawg-pcapng: byte-order magic, version 1.0, section length unknown.
        let body =
            [order.u32(0x1a2b_3c4d).to_vec(), order.u16(1).to_vec(), order.u16(0).to_vec(), vec![0xff; 8]];
        file.block(0x0a0d_0d0a, &body.concat());
        file
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = self.order.u32(u32::try_from(12 + body.len() + padding.len()).expect("it is short"));
        self.bytes.extend([&self.order.u32(kind)[..], &length, body, &padding, &length].concat());
    }

    /// An interface, with the time resolution as the `if_tsresol` option has it.
    pub(crate) fn interface(mut self, link_type: u16, resolution: Option<u8>) -> Self {
        let order = self.order;
        let mut body = [order.u16(link_type), order.u16(0)].concat();
        body.extend(order.u32(0));
        if let Some(resolution) = resolution {
            body.extend([order.u16(9), order.u16(1)].concat());
            body.extend([resolution, 0, 0, 0]);
            body.extend([0; 4]);
        }
        self.block(1, &body);
        self
    }

    /// An enhanced packet block, with the time in units of the interface.
    pub(crate) fn packet(mut self, interface: u32, units: u64, record: &Record) -> Self {
        let [high, low] = [units >> 32, units & 0xffff_ffff].map(|half| u32::try_from(half).expect("a half"));
        let fields = [interface, high, low, record.captured(), record.length];
        let body = [fields.map(|field| self.order.u32(field)).concat(), record.data.clone()].concat();
        self.block(6, &body);
        self
    }

    /// A simple packet block, which has no time.
    pub(crate) fn simple(mut self, record: &Record) -> Self {
        let body = [self.order.u32(record.length).to_vec(), record.data.clone()].concat();
        self.block(3, &body);
        self
    }

    /// A block that says nothing about packets (name resolution).
    pub(crate) fn other(mut self) -> Self {
        self.block(4, &[0; 4]);
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.bytes
    }
}
