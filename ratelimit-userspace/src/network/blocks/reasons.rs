//! Why sources are blocked: texts that many blocks share, numbered, in a pinned map.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use aya::maps::{HashMap as BpfHashMap, Map, MapData, MapError};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_HASH;

use super::BlocksError;
use crate::network::state;

/// Bytes of a reason, at most.
pub const MAX_REASON: usize = 120;

/// A reason in the map: its bytes, then zeroes.
type Text = [u8; 128];

/// Different reasons at a time, at most.
const MAX_REASONS: u32 = 65_536;

/// `BPF_F_NO_PREALLOC` of linux/bpf.h.
const NO_PREALLOC: u32 = 1;

/// The number of no reason.
const NONE: u32 = 0;

/// The reasons of blocks by their numbers. The map is made with the first of them.
#[derive(Debug)]
pub(super) struct Reasons {
    path: PathBuf,
    map: Option<BpfHashMap<MapData, u32, Text>>,
    /// All of them, once one has to be given a number.
    known: Option<Known>,
}

#[derive(Debug, Default)]
struct Known {
    numbers: HashMap<String, u32>,
    taken: HashSet<u32>,
    last: u32,
}

// === impl Reasons ===

impl Reasons {
    /// Those that are pinned at `path`, if any.
    pub(super) fn open(path: PathBuf) -> Result<Self, BlocksError> {
        let map = match state::open(&path)? {
            Some(data) => {
                Some(BpfHashMap::try_from(Map::HashMap(data)).map_err(|source| BlocksError::Map {
                    verb: "use",
                    path: path.clone(),
                    source,
                })?)
            }
            None => None,
        };
        Ok(Self { path, map, known: None })
    }

    /// The text of a number; empty if it is not known.
    pub(super) fn text(&self, number: u64) -> Result<String, BlocksError> {
        let (Some(map), Ok(number @ 1..)) = (&self.map, u32::try_from(number)) else {
            return Ok(String::new());
        };
        match map.get(&number, 0) {
            Ok(text) => Ok(words(&text)),
            Err(MapError::KeyNotFound) => Ok(String::new()),
            Err(source) => Err(self.failed("read", source)),
        }
    }

    /// The number of a text, which is kept if it is new.
    pub(super) fn number(&mut self, text: &str) -> Result<u32, BlocksError> {
        if text.is_empty() {
            return Ok(NONE);
        }
        if let Some(number) = self.known()?.numbers.get(text) {
            return Ok(*number);
        }
        if text.len() > MAX_REASON {
            return Err(BlocksError::LongReason { length: text.len() });
        }
        if text.chars().any(char::is_control) {
            return Err(BlocksError::ControlCharacters);
        }
        let known = self.known()?;
        if known.taken.len() >= MAX_REASONS as usize {
            return Err(BlocksError::TooManyReasons { most: MAX_REASONS });
        }
        let number = known.unused();
        let mut bytes = [0; size_of::<Text>()];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let inserted = self.map()?.insert(number, bytes, 0);
        inserted.map_err(|source| self.failed("write", source))?;
        self.known()?.add(text.to_owned(), number);
        Ok(number)
    }

    /// Forgets all reasons but those with these numbers.
    pub(super) fn retain(&mut self, used: &HashSet<u32>) -> Result<(), BlocksError> {
        let Some(map) = &mut self.map else { return Ok(()) };
        let failed = |source| BlocksError::Map { verb: "write", path: self.path.clone(), source };
        let numbers: Vec<u32> = map.keys().collect::<Result<_, _>>().map_err(failed)?;
        for number in numbers.iter().filter(|number| !used.contains(number)) {
            map.remove(number).map_err(failed)?;
            self.known = None;
        }
        Ok(())
    }

    fn known(&mut self) -> Result<&mut Known, BlocksError> {
        let known = match self.known.take() {
            Some(known) => known,
            None => self.read()?,
        };
        Ok(self.known.insert(known))
    }

    fn read(&self) -> Result<Known, BlocksError> {
        let mut known = Known::default();
        for entry in self.map.iter().flat_map(BpfHashMap::iter) {
            let (number, text) = entry.map_err(|source| self.failed("read", source))?;
            known.add(words(&text), number);
        }
        Ok(known)
    }

    fn map(&mut self) -> Result<&mut BpfHashMap<MapData, u32, Text>, BlocksError> {
        let map = match self.map.take() {
            Some(map) => map,
            None => self.make()?,
        };
        Ok(self.map.insert(map))
    }

    fn make(&self) -> Result<BpfHashMap<MapData, u32, Text>, BlocksError> {
        let text = u32::try_from(size_of::<Text>()).unwrap_or(u32::MAX);
        let map = aya_obj::Map::new_from_params(BPF_MAP_TYPE_HASH as u32, 4, text, MAX_REASONS, NO_PREALLOC);
        let data =
            MapData::create(map, "block_reasons", None).map_err(|source| self.failed("make", source))?;
        data.pin(&self.path).map_err(|error| self.failed("pin", MapError::PinError { name: None, error }))?;
        BpfHashMap::try_from(Map::HashMap(data)).map_err(|source| self.failed("use", source))
    }

    fn failed(&self, verb: &'static str, source: MapError) -> BlocksError {
        BlocksError::Map { verb, path: self.path.clone(), source }
    }
}

// === impl Known ===

impl Known {
    fn add(&mut self, text: String, number: u32) {
        self.numbers.insert(text, number);
        self.taken.insert(number);
        self.last = self.last.max(number);
    }

    fn unused(&self) -> u32 {
        let after = |number: u32| number.checked_add(1).unwrap_or(NONE + 1);
        let mut number = after(self.last);
        while self.taken.contains(&number) {
            number = after(number);
        }
        number
    }
}

fn words(text: &Text) -> String {
    let bytes = text.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}
