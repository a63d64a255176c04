//! Hand-made instructions, and objects around them.

use object::{BinaryFormat, SectionKind, SymbolFlags, SymbolKind, SymbolScope, write};

use super::*;

const EXIT: [u8; LENGTH] = [0x95, 0, 0, 0, 0, 0, 0, 0];

/// `opcode dst=1 src=2 offset imm`.
fn instruction(opcode: u8, offset: i16, immediate: i32) -> [u8; LENGTH] {
    let [offset_0, offset_1] = offset.to_le_bytes();
    let [i0, i1, i2, i3] = immediate.to_le_bytes();
    [opcode, 0x21, offset_0, offset_1, i0, i1, i2, i3]
}

/// An object with this code in a section `xdp`, type information, and nothing wrong otherwise.
struct Fixture<'a> {
    code: &'a [[u8; LENGTH]],
    btf: bool,
    symbol: &'a str,
    maps: Option<&'a str>,
}

impl Default for Fixture<'_> {
    fn default() -> Self {
        Self { code: &[EXIT], btf: true, symbol: "ratelimit", maps: None }
    }
}

impl Fixture<'_> {
    fn build(&self) -> Vec<u8> {
        let Self { code, btf, symbol, maps } = self;
        let mut object = write::Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
        let text = object.add_section(Vec::new(), b"xdp".to_vec(), SectionKind::Text);
        object.append_section_data(text, &code.concat(), 8);
        object.add_symbol(write::Symbol {
            name: symbol.as_bytes().to_vec(),
            value: 0,
            size: 8,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: write::SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
        if *btf {
            let section = object.add_section(Vec::new(), b".BTF".to_vec(), SectionKind::Other);
            object.append_section_data(section, &[0x9f, 0xeb, 1, 0], 4);
        }
        if let Some(maps) = maps {
            let section = object.add_section(Vec::new(), maps.as_bytes().to_vec(), SectionKind::Data);
            object.append_section_data(section, &[0; 20], 4);
        }
        object.write().unwrap()
    }

    fn defects(&self) -> Vec<Defect> {
        inspect(&self.build()).unwrap()
    }
}

#[test]
fn a_sound_object_passes() {
    assert_eq!(Fixture::default().defects(), []);
    verify(&Fixture::default().build()).unwrap();
}

#[test]
fn atomics_are_told_apart_by_the_fetch_bit() {
    for (immediate, operation) in [(0x00, "add"), (0x40, "or"), (0x50, "and"), (0xa0, "xor")] {
        for opcode in [0xc3, 0xdb] {
            let plain = instruction(opcode, 8, immediate);
            assert_eq!(non_fetching_atomic(plain), Some(operation));
            assert_eq!(non_fetching_atomic(instruction(opcode, 8, immediate | 1)), None);
        }
    }
    // Exchange and compare-and-exchange.
    assert_eq!(non_fetching_atomic(instruction(0xdb, 8, 0xe1)), None);
    assert_eq!(non_fetching_atomic(instruction(0xdb, 8, 0xf1)), None);
    // An ordinary store of the same size.
    assert_eq!(non_fetching_atomic(instruction(0x7b, 8, 0)), None);
}

#[test]
fn a_lost_result_is_found_in_an_object_that_was_sound() {
    // A fetching add stands in the object; clearing its bit is what the compiler's bug comes down to.
    let fetching = instruction(0xdb, 0, 0x01);
    let mut bytes = Fixture { code: &[fetching, EXIT], ..Fixture::default() }.build();
    verify(&bytes).unwrap();
    let place = bytes.windows(LENGTH).position(|window| window == fetching).unwrap();
    bytes[place + 4] = 0;
    let message = verify(&bytes).unwrap_err().to_string();
    assert!(message.contains("xdp+0x0: an atomic add") && message.contains("SeqCst"), "{message}");
}

#[test]
fn the_second_half_of_a_constant_load_is_not_an_instruction() {
    let load = instruction(0x18, 0, 0);
    let looks_like_an_atomic = instruction(0xdb, 0, 0);
    assert_eq!(Fixture { code: &[load, looks_like_an_atomic, EXIT], ..Fixture::default() }.defects(), []);
    let after = Fixture { code: &[load, EXIT, looks_like_an_atomic, EXIT], ..Fixture::default() };
    assert_eq!(
        after.defects(),
        [Defect::NonFetchingAtomic { section: "xdp".to_owned(), offset: 16, operation: "add" }]
    );
}

#[test]
fn jumps_to_themselves_are_found_in_all_forms() {
    assert!(is_endless_loop(instruction(0x05, -1, 0)));
    assert!(is_endless_loop(instruction(0x06, 0, -1)));
    assert!(is_endless_loop(instruction(0x1d, -1, 0)));
    assert!(!is_endless_loop(instruction(0x05, -2, 0)));
    assert!(!is_endless_loop(instruction(0x06, -1, 7)));
    // The immediate of a call to a function of the same object is -1 before relocation.
    assert!(!is_endless_loop([0x85, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff]));
    assert!(!is_endless_loop(EXIT));
    let looping = Fixture { code: &[instruction(0x05, -1, 0), EXIT], ..Fixture::default() };
    assert_eq!(looping.defects(), [Defect::EndlessLoop { section: "xdp".to_owned(), offset: 0 }]);
}

#[test]
fn the_panic_machinery_is_found_by_name() {
    for symbol in [
        "_RNvCshGpAVYOtgW1_7___rustc17rust_begin_unwind",
        "_ZN4core9panicking9panic_fmt17h0123456789abcdefE",
        "_RNvNtCs1_4core9panicking18panic_bounds_check",
    ] {
        let defects = Fixture { symbol, ..Fixture::default() }.defects();
        assert_eq!(defects, [Defect::Panic { symbol: symbol.to_owned() }]);
    }
}

#[test]
fn maps_without_btf_and_objects_without_btf_are_refused() {
    for maps in ["maps", "maps/buckets"] {
        let defects = Fixture { maps: Some(maps), ..Fixture::default() }.defects();
        assert_eq!(defects, [Defect::LegacyMaps { section: maps.to_owned() }]);
    }
    assert_eq!(Fixture { maps: Some(".maps"), ..Fixture::default() }.defects(), []);
    assert_eq!(Fixture { btf: false, ..Fixture::default() }.defects(), [Defect::NoBtf]);
    assert_eq!(Fixture { code: &[], ..Fixture::default() }.defects(), [Defect::NoCode]);
}

#[test]
fn a_half_instruction_is_refused() {
    assert_eq!(inspect_code("xdp", &EXIT[..5]), [Defect::Truncated { section: "xdp".to_owned() }]);
    let load = instruction(0x18, 0, 0);
    assert_eq!(inspect_code("xdp", &load), [Defect::Truncated { section: "xdp".to_owned() }]);
}

#[test]
fn other_files_are_no_objects() {
    assert!(verify(b"not an object").unwrap_err().to_string().contains("ELF"));
    let host = write::Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    assert!(verify(&host.write().unwrap()).unwrap_err().to_string().contains("not for little-endian BPF"));
}
