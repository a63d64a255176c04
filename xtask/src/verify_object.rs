//! Reads a finished BPF object instruction by instruction and refuses what must not ship.
//!
//! The compiler can be wrong in a way that no test of the source sees: LLVM turns a relaxed atomic that
//! returns the old value into the form that returns nothing (llvm#210280), and the program goes on with
//! a number that was never read. The other checks are of things that the kernel would refuse, or
//! accept on some hosts only, long after the build.

use std::fmt;

use anyhow::{Context as _, Result, bail};
use object::{
    Architecture, Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind,
    read::elf::ElfFile64,
};

/// Length of an instruction in bytes; a 64-bit constant load takes two (RFC 9669 section 3).
const LENGTH: usize = 8;

/// One thing that is wrong with an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Defect {
    /// An atomic in its form that returns nothing.
    ///
    /// The source uses the result of each of its atomics, so the compiler has lost one.
    NonFetchingAtomic {
        /// The section of the instruction.
        section: String,
        /// The instruction's offset in the section, in bytes.
        offset: usize,
        /// The operation.
        operation: &'static str,
    },
    /// A jump to itself: what the panic handler, or any other endless loop, comes down to.
    EndlessLoop {
        /// The section of the instruction.
        section: String,
        /// The instruction's offset in the section, in bytes.
        offset: usize,
    },
    /// A piece of the panic machinery survived linking, so something calls it.
    Panic {
        /// The symbol.
        symbol: String,
    },
    /// A section of map definitions in the form before BTF, which libbpf 1.0 and later refuse.
    LegacyMaps {
        /// The section.
        section: String,
    },
    /// The object carries no type information, by which loaders find its maps.
    NoBtf,
    /// A section of code that is no whole number of instructions.
    Truncated {
        /// The section.
        section: String,
    },
    /// There is no section of code at all.
    NoCode,
}

/// Fails with every defect of the object, one a line.
pub fn verify(bytes: &[u8]) -> Result<()> {
    let defects = inspect(bytes)?;
    if defects.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = defects.iter().map(|defect| format!("\n  - {defect}")).collect();
    bail!("{} found{}", count(defects.len(), "defect"), lines.concat());
}

/// Lists the defects of an object; an error means that it is no BPF object.
pub fn inspect(bytes: &[u8]) -> Result<Vec<Defect>> {
    let file = ElfFile64::<Endianness>::parse(bytes).context("not a 64-bit ELF file")?;
    if file.architecture() != Architecture::Bpf || !file.is_little_endian() {
        bail!("an ELF file for {:?}, not for little-endian BPF", file.architecture());
    }
    let mut defects = Vec::new();
    let mut has_code = false;
    let mut has_btf = false;
    for section in file.sections() {
        let name = section.name().context("a section's name is unreadable")?;
        let data = || section.data().with_context(|| format!("section {name} is unreadable"));
        match name {
            ".BTF" => has_btf = !data()?.is_empty(),
            "maps" => defects.push(Defect::LegacyMaps { section: name.to_owned() }),
            _ if name.starts_with("maps/") => defects.push(Defect::LegacyMaps { section: name.to_owned() }),
            _ if section.kind() == SectionKind::Text => {
                has_code |= !data()?.is_empty();
                defects.extend(inspect_code(name, data()?));
            }
            _ => {}
        }
    }
    for symbol in file.symbols().filter(|symbol| symbol.is_definition() || symbol.is_undefined()) {
        let name = symbol.name().context("a symbol's name is unreadable")?;
        if is_panic(name) {
            defects.push(Defect::Panic { symbol: name.to_owned() });
        }
    }
    if !has_btf {
        defects.push(Defect::NoBtf);
    }
    if !has_code {
        defects.push(Defect::NoCode);
    }
    Ok(defects)
}

/// Whether a symbol (mangled, of either scheme) belongs to the panic machinery.
fn is_panic(symbol: &str) -> bool {
    ["rust_begin_unwind", "rust_panic", "9panicking", "panic_fmt", "panic_bounds_check", "unwrap_failed"]
        .iter()
        .any(|part| symbol.contains(part))
}

/// Decodes every instruction of a section (RFC 9669 sections 3 and 4).
fn inspect_code(section: &str, code: &[u8]) -> Vec<Defect> {
    const CONSTANT_LOAD: u8 = 0x18;

    let mut defects = Vec::new();
    let mut offset = 0;
    while let Some(instruction) = code.get(offset..offset + LENGTH) {
        let instruction: &[u8; LENGTH] = instruction.try_into().expect("a slice of that length");
        if let Some(operation) = non_fetching_atomic(*instruction) {
            defects.push(Defect::NonFetchingAtomic { section: section.to_owned(), offset, operation });
        }
        if is_endless_loop(*instruction) {
            defects.push(Defect::EndlessLoop { section: section.to_owned(), offset });
        }
        offset += if instruction[0] == CONSTANT_LOAD { 2 * LENGTH } else { LENGTH };
    }
    if offset != code.len() {
        defects.push(Defect::Truncated { section: section.to_owned() });
    }
    defects
}

/// The operation, if this is an atomic that does not return the old value.
fn non_fetching_atomic([opcode, _, _, _, immediate @ ..]: [u8; LENGTH]) -> Option<&'static str> {
    // Class STX, mode ATOMIC, size W or DW.
    const ATOMIC: [u8; 2] = [0xc3, 0xdb];

    if !ATOMIC.contains(&opcode) {
        return None;
    }
    // With FETCH the lowest bit is set. Exchange and compare-and-exchange exist in that form only.
    match u32::from_le_bytes(immediate) {
        0x00 => Some("add"),
        0x40 => Some("or"),
        0x50 => Some("and"),
        0xa0 => Some("xor"),
        _ => None,
    }
}

/// Whether this is a jump, conditional or not, to itself.
fn is_endless_loop([opcode, _, offset_0, offset_1, immediate @ ..]: [u8; LENGTH]) -> bool {
    const CLASS: u8 = 0x07;
    const JMP: u8 = 0x05;
    const JMP32: u8 = 0x06;
    const ALWAYS_LONG: u8 = 0x06;
    const CALL: u8 = 0x80;
    const EXIT: u8 = 0x90;

    let distance = i16::from_le_bytes([offset_0, offset_1]);
    match (opcode & CLASS, opcode & 0xf0) {
        // The long form keeps the distance in the immediate.
        (JMP32, 0) if opcode == ALWAYS_LONG => i32::from_le_bytes(immediate) == -1,
        (JMP | JMP32, CALL | EXIT) => false,
        (JMP | JMP32, _) => distance == -1,
        _ => false,
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

// === impl Defect ===

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NonFetchingAtomic { section, offset, operation } => write!(
                f,
                "{section}+{offset:#x}: an atomic {operation} that does not return the old value, though the \
                 source uses it (llvm#210280); give that operation SeqCst or AcqRel ordering instead of Relaxed"
            ),
            Self::EndlessLoop { section, offset } => write!(
                f,
                "{section}+{offset:#x}: a jump to itself, so a panic (or an endless loop) is reachable; look \
                 for indexing, division, unwrap or overflow checks that the compiler could not rule out"
            ),
            Self::Panic { symbol } => write!(
                f,
                "symbol {symbol}: a panic is reachable; look for indexing, division, unwrap or overflow checks \
                 that the compiler could not rule out"
            ),
            Self::LegacyMaps { section } => {
                write!(f, "section {section}: a map without BTF; declare it with #[btf_map]")
            }
            Self::NoBtf => f.write_str("no type information (.BTF); link with --btf and debug information"),
            Self::Truncated { section } => {
                write!(f, "section {section}: its length is no whole number of instructions")
            }
            Self::NoCode => f.write_str("no program in it"),
        }
    }
}

#[cfg(test)]
mod tests;
