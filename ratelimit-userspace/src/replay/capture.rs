//! Capture files, read as a stream: pcap with micro- or nanoseconds in either byte order, and pcapng.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, traits::PcapReaderIterator};

/// Enough for a frame of any size with its block header; the reader never holds more of the file.
const BUFFER: usize = 1 << 20;
/// A packet that claims to be larger is a damaged file.
const LARGEST_BLOCK: usize = 1 << 24;

/// One captured frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Nanoseconds since the epoch of the capture's clock.
    pub time: u128,
    /// Length on the wire in bytes.
    pub length: u32,
    /// What was captured of it.
    pub data: &'a [u8],
}

/// Why a capture cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("failed to open {}", path.display())]
    Open {
        /// The capture.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Reading fails.
    #[error("failed to read {} after packet {packets}", path.display())]
    Read {
        /// The capture.
        path: PathBuf,
        /// Packets read before.
        packets: u64,
    },
    /// Neither pcap nor pcapng, nor a trace.
    #[error(
        "{} is neither a capture (pcap or pcapng, as `tcpdump -w` writes it) nor a trace of requests (a JSON \
         object a line)",
        path.display()
    )]
    NotACapture {
        /// The capture.
        path: PathBuf,
    },
    /// Not Ethernet.
    #[error(
        "{} was captured with link type {link_type}, and only Ethernet (1) can be replayed; \
         capture on the interface itself, not on `any`",
        path.display()
    )]
    LinkType {
        /// The capture.
        path: PathBuf,
        /// The link type, see <https://www.tcpdump.org/linktypes.html>.
        link_type: i32,
    },
    /// The file ends within a packet.
    #[error("{} ends in the middle of packet {}; all before it were read", path.display(), packets + 1)]
    EndsEarly {
        /// The capture.
        path: PathBuf,
        /// Packets read before.
        packets: u64,
    },
    /// The file contradicts itself.
    #[error("{} is damaged after packet {packets}: {what}", path.display())]
    Damaged {
        /// The capture.
        path: PathBuf,
        /// Packets read before.
        packets: u64,
        /// What is wrong.
        what: String,
    },
}

/// How the time stamps of one interface are to be read.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Units a second.
    resolution: u64,
    /// Seconds to add.
    offset: i64,
}

/// An open capture.
pub struct Capture {
    path: PathBuf,
    reader: Box<dyn PcapReaderIterator + Send>,
    /// By interface of the current section; a pcap file has one.
    clocks: Vec<Clock>,
    /// The time of the latest packet: packets of a pcapng simple block have none of their own.
    latest: u128,
    packets: u64,
    /// Bytes of the block handed out last, to be consumed before the next.
    pending: usize,
}

// === impl Capture ===

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture")
            .field("path", &self.path)
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

impl Capture {
    /// Reads the header of a capture. `path` stands for it in messages.
    pub fn new(path: &Path, reader: impl Read + Send + 'static) -> Result<Self, CaptureError> {
        let reader = pcap_parser::create_reader(BUFFER, reader)
            .map_err(|_| CaptureError::NotACapture { path: path.to_owned() })?;
        Ok(Self { path: path.to_owned(), reader, clocks: Vec::new(), latest: 0, packets: 0, pending: 0 })
    }

    /// The next frame; `None` at the end of the file.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        let Self { path, reader, clocks, latest, packets, pending } = self;
        loop {
            reader.consume(std::mem::take(pending));
            let found = match reader.next() {
                Ok((size, block)) => {
                    *pending = size;
                    Step::read(&block, size, clocks)
                }
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::Incomplete(_)) => Ok(Step::Refill),
                Err(PcapError::BufferTooSmall) => Ok(Step::Grow),
                Err(PcapError::UnexpectedEof) => {
                    return Err(CaptureError::EndsEarly { path: path.clone(), packets: *packets });
                }
                Err(error) => Err(Fault::Damaged(error.to_string())),
            };
            let damaged =
                |what: String| CaptureError::Damaged { path: path.clone(), packets: *packets, what };
            match found {
                Ok(Step::Skip) => {}
                Ok(Step::Refill) => {
                    if reader.refill().is_err() {
                        return Err(CaptureError::Read { path: path.clone(), packets: *packets });
                    }
                }
                Ok(Step::Grow) => {
                    let size = reader.data().len().max(BUFFER) * 2;
                    if size > LARGEST_BLOCK || !reader.grow(size) {
                        return Err(damaged("a block is larger than any packet".to_owned()));
                    }
                    if reader.refill().is_err() {
                        return Err(CaptureError::Read { path: path.clone(), packets: *packets });
                    }
                }
                Ok(Step::Packet { time, length, start, captured }) => {
                    *packets += 1;
                    let time = time.unwrap_or(*latest);
                    *latest = time;
                    let data = &reader.data()[start..start + captured];
                    return Ok(Some(Frame { time, length, data }));
                }
                Err(Fault::LinkType(link_type)) => {
                    return Err(CaptureError::LinkType { path: path.clone(), link_type });
                }
                Err(Fault::Damaged(what)) => return Err(damaged(what)),
            }
        }
    }
}

/// What one block of the file means. Packets are told by place, since the block borrows the reader.
enum Step {
    Skip,
    Refill,
    Grow,
    Packet { time: Option<u128>, length: u32, start: usize, captured: usize },
}

/// A block type that writers gave up in 2009.
const OBSOLETE_PACKET: u32 = 2;

/// What to do with formats that hardly exist any more.
const CONVERT: &str = "it is of a kind that is not read here; convert it with `editcap -F pcapng`";

enum Fault {
    LinkType(i32),
    Damaged(String),
}

/// Offset of the data in a pcapng enhanced packet block and in a simple one.
const ENHANCED_HEADER: usize = 28;
const SIMPLE_HEADER: usize = 12;

impl Step {
    fn read(block: &PcapBlockOwned<'_>, size: usize, clocks: &mut Vec<Clock>) -> Result<Self, Fault> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                if header.is_modified_format() || header.version_major != 2 {
                    return Err(Fault::Damaged(CONVERT.to_owned()));
                }
                ethernet(header.network)?;
                let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
                clocks.push(Clock { resolution, offset: 0 });
                Ok(Self::Skip)
            }
            PcapBlockOwned::Legacy(record) => {
                let clock = clock(clocks, 0)?;
                let units =
                    u128::from(record.ts_sec) * u128::from(clock.resolution) + u128::from(record.ts_usec);
                Ok(Self::packet(
                    Some(clock.nanos(units)),
                    record.origlen,
                    size - record.data.len(),
                    record.data.len(),
                ))
            }
            PcapBlockOwned::NG(Block::SectionHeader(section)) => {
                if section.major_version != 1 {
                    return Err(Fault::Damaged(CONVERT.to_owned()));
                }
                clocks.clear();
                Ok(Self::Skip)
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                ethernet(interface.linktype)?;
                let Some(resolution) = resolution(interface.if_tsresol) else {
                    return Err(Fault::Damaged(format!(
                        "time resolution {:#x} is impossible",
                        interface.if_tsresol
                    )));
                };
                clocks.push(Clock { resolution, offset: interface.ts_offset() });
                Ok(Self::Skip)
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let clock = clock(clocks, packet.if_id as usize)?;
                let units = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
                let captured = (packet.caplen as usize).min(packet.data.len());
                Ok(Self::packet(Some(clock.nanos(units)), packet.origlen, ENHANCED_HEADER, captured))
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                clock(clocks, 0)?;
                let captured = (packet.origlen as usize).min(packet.data.len());
                Ok(Self::packet(None, packet.origlen, SIMPLE_HEADER, captured))
            }
            PcapBlockOwned::NG(Block::Unknown(block)) if block.block_type == OBSOLETE_PACKET => {
                Err(Fault::Damaged(CONVERT.to_owned()))
            }
            PcapBlockOwned::NG(_) => Ok(Self::Skip),
        }
    }

    /// A frame is never shorter than what was captured of it, whatever the file says.
    fn packet(time: Option<u128>, length: u32, start: usize, captured: usize) -> Self {
        let length = length.max(u32::try_from(captured).unwrap_or(u32::MAX));
        Self::Packet { time, length, start, captured }
    }
}

impl Clock {
    /// Nanoseconds since 1970; a time before it counts as 0.
    fn nanos(self, units: u128) -> u128 {
        let nanos = units * 1_000_000_000 / u128::from(self.resolution);
        let offset = i128::from(self.offset) * 1_000_000_000;
        nanos.checked_add_signed(offset).unwrap_or(0)
    }
}

fn ethernet(link_type: Linktype) -> Result<(), Fault> {
    // The upper bits of a pcap header's field tell of a frame check sequence.
    match Linktype(link_type.0 & 0xffff) {
        Linktype::ETHERNET => Ok(()),
        Linktype(other) => Err(Fault::LinkType(other)),
    }
}

/// Units a second, as the option `if_tsresol` has them: a power of ten, or with the top bit set of two.
fn resolution(option: u8) -> Option<u64> {
    let exponent = u32::from(option & 0x7f);
    if option & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 1_u64.checked_shl(exponent) }
}

fn clock(clocks: &[Clock], interface: usize) -> Result<Clock, Fault> {
    clocks
        .get(interface)
        .copied()
        .ok_or_else(|| Fault::Damaged(format!("interface {interface} is used but not described")))
}
