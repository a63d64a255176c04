//! What one start or reload does to the pins: it takes over the state of the generation that runs, of
//! whatever version, and lays its own beside it until that one runs.
//!
//! | what is pinned | what becomes of it |
//! |---|---|
//! | as this build has it | kept; another version's is pinned here as well |
//! | of another size (the policy's capacity, say) | begins anew |
//! | otherwise different, by another version | begins anew |
//! | otherwise different, by this version | the start is refused: somebody else pinned that |
//!
//! Blocks stay together, and maps with times or hashes are nothing without the table's zero and key, nor
//! those with counter slots without the description that says whose they are.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    maps::{Map, MapData, MapError, PerCpuArray, PerCpuValues},
    programs::Xdp,
    util::nr_cpus,
};
use aya_obj::programs::XdpAttachType;
use ratelimit_common::{block_table, policy::MAX_LIMITS, record::RuleCounters};

use super::{
    Difference, INITIAL_BLOCKS, Layout, STATE_MAPS, StateDir, StateError, Table,
    generation::{self, PROGRAM},
    layout, lists, maps,
    maps::{BLOCK_REASONS, BLOCKS, BUCKETS, Part, RULE_BUCKETS, RULE_COUNTERS},
    open, open_array, pin_map, remove_directory,
    table::TABLE,
    version,
};
use crate::network::{
    compile::Slots,
    description::{self, Description},
    program::StateMaps,
};

/// One start's or reload's changes to the pins. Dropping it before [`Adoption::commit`] undoes them.
#[derive(Debug)]
pub struct Adoption {
    /// The table that the program will use.
    pub table: Table,
    /// Sets that the operator's table of blocked addresses has.
    pub block_sets: u32,
    /// Sets that the bucket table had and will have, when its size changes.
    pub resized: Option<(u32, u32)>,
    /// Whether state of an earlier start is kept.
    pub kept: bool,
    /// Whether the maps of blocks are new: those of the state directory's file have to be put into them, once
    /// the program is loaded and before it is attached.
    pub blocks_are_new: bool,
    /// What the generation before said of itself.
    previous: Option<Description>,
    state: StateDir,
    /// Where the pins of the generation before are.
    source: PathBuf,
    kept_parts: BTreeSet<Part>,
    anew: BTreeSet<Part>,
    /// Why `previous` is not known though there is one.
    unreadable: Option<StateError>,
    /// Maps that begin anew while those of the same name still run.
    staged: Vec<&'static str>,
    /// Pins that were not there before.
    made: Vec<&'static str>,
    /// Lists that were.
    lists: BTreeSet<PathBuf>,
    committed: bool,
}

/// A state map, as it was found.
struct Found {
    name: &'static str,
    path: PathBuf,
    map: Option<MapData>,
    /// How this build has it.
    expected: Layout,
    difference: Option<Difference>,
}

// === impl StateDir ===

impl StateDir {
    /// Prepares the state maps for a program from `object` with `sets` sets of buckets. `attached` are the
    /// programs on interfaces: they tell which version's pins are those that run.
    pub fn adopt(&self, object: &[u8], sets: u32, attached: &BTreeSet<u32>) -> Result<Adoption, StateError> {
        let own = self.state();
        let source = generation::current(self, attached)?.unwrap_or_else(|| own.clone());
        let mut adoption = Adoption {
            table: Table { hash_key: [0; 2], epoch: 0 },
            block_sets: block_table::sets_for(INITIAL_BLOCKS),
            resized: None,
            kept: false,
            blocks_are_new: true,
            previous: None,
            state: self.clone(),
            source,
            kept_parts: BTreeSet::new(),
            anew: BTreeSet::new(),
            unreadable: None,
            staged: Vec::new(),
            made: Vec::new(),
            lists: BTreeSet::new(),
            committed: false,
        };
        match Description::read(&adoption.source) {
            Ok(description) => adoption.previous = description,
            Err(error) => adoption.unreadable = Some(error),
        }
        let found = adoption.look(object, sets)?;
        if adoption.is_upgrade() {
            // What an earlier start of this version left when another one took over.
            generation::clear(&own)?;
            lists::carry(&adoption.source, &own)?;
        }
        adoption.lists = lists::all(&own)?;
        adoption.take(found, &own)?;
        Ok(adoption)
    }
}

// === impl Adoption ===

impl Adoption {
    fn is_upgrade(&self) -> bool {
        self.source != self.state.state()
    }

    /// What is pinned, compared with what is expected. Changes nothing.
    fn look(&mut self, object: &[u8], sets: u32) -> Result<Vec<Found>, StateError> {
        let mut all = Vec::new();
        for (name, mut expected) in layout::expected(object, &STATE_MAPS)? {
            let path = self.pin_of(name);
            let map = open(&path)?;
            let mut difference = None;
            if let Some(map) = &map {
                let layout = Layout::of(map).map_err(|source| StateError::Map {
                    verb: "inspect",
                    path: path.clone(),
                    source,
                })?;
                if name == BLOCKS {
                    self.block_sets = layout.entries();
                }
                let entries = match name {
                    BUCKETS => Some(sets),
                    _ => maps::own_entries(name, self.block_sets),
                };
                expected = entries.map_or(expected, |entries| expected.with_entries(entries));
                difference = layout.difference(&expected);
            }
            all.push(Found { name, path, map, expected, difference });
        }
        Ok(all)
    }

    /// The pin to take a map from. One that was moved aside belongs to a growth that was interrupted, and is
    /// the one that was written last.
    fn pin_of(&self, name: &str) -> PathBuf {
        let old = self.source.join(format!("{name}-old"));
        if self.is_upgrade() && old.exists() { old } else { self.source.join(name) }
    }

    /// Keeps what fits; the rest will begin anew.
    fn take(&mut self, found: Vec<Found>, own: &Path) -> Result<(), StateError> {
        let upgrade = self.is_upgrade();
        if let Some(Found { path, difference: Some(difference), .. }) = found
            .iter()
            .find(|found| !upgrade && !matches!(found.difference, None | Some(Difference::Entries { .. })))
        {
            return Err(StateError::Layout { path: path.clone(), difference: *difference });
        }

        let any = found.iter().any(|found| found.map.is_some());
        let table = Table::read(&self.source.join(TABLE))
            .or_else(|error| if upgrade { Ok(None) } else { Err(error) })?;
        if table.is_none() && any && !upgrade {
            return Err(StateError::Incomplete(own.to_owned()));
        }
        // A start that was interrupted before it was described has used no slot.
        let slots = self.unreadable.is_none() && (self.previous.is_some() || !upgrade);
        let fits = |found: &Found| {
            found.map.is_some()
                && found.difference.is_none()
                && (table.is_some() || !maps::needs_table(found.name))
                && (slots || !maps::needs_slots(found.name))
        };
        let blocks = |found: &&Found| Part::of(found.name) == Part::Blocks;
        self.blocks_are_new = !found.iter().filter(blocks).all(fits);
        if self.blocks_are_new {
            self.block_sets = block_table::sets_for(INITIAL_BLOCKS);
        }

        if let Some(table) = table {
            self.table = table;
            if upgrade && let Some(map) = open(&self.source.join(TABLE))? {
                pin_map(&map, &own.join(TABLE))?;
            }
        } else {
            self.made.push(TABLE);
            self.table = Table::make(&own.join(TABLE))?;
        }
        for found in found {
            let part = Part::of(found.name);
            if fits(&found) && !(part == Part::Blocks && self.blocks_are_new) {
                self.kept = true;
                self.kept_parts.insert(part);
                if let Some(map) = found.map.filter(|_| upgrade) {
                    pin_map(&map, &own.join(found.name))?;
                }
                continue;
            }
            if let (BUCKETS, Some(Difference::Entries { found, expected })) = (found.name, found.difference) {
                self.resized = Some((found, expected));
            }
            match found.map {
                Some(_) if upgrade => _ = self.anew.insert(part),
                Some(_) => {
                    self.anew.insert(part);
                    self.stage_map(found.name, found.expected)?;
                }
                None => self.made.push(found.name),
            }
        }
        self.kept_parts.retain(|part| !self.anew.contains(part));
        if upgrade
            && !self.blocks_are_new
            && let Some(reasons) = open(&self.source.join(BLOCK_REASONS))?
        {
            pin_map(&reasons, &own.join(BLOCK_REASONS))?;
        }
        Ok(())
    }

    /// Lays a new map beside the one that still runs.
    fn stage_map(&mut self, name: &'static str, layout: Layout) -> Result<(), StateError> {
        let path = generation::staged(&self.state.state(), name);
        let map =
            layout.with_entries(maps::own_entries(name, self.block_sets).unwrap_or_else(|| layout.entries()));
        let map = map.create(name).map_err(|source| StateError::Map {
            verb: "make",
            path: path.clone(),
            source,
        })?;
        pin_map(&map, &path)?;
        self.staged.push(name);
        Ok(())
    }

    /// The counter slots of the generation before.
    pub fn previous_slots(&self) -> Slots {
        self.previous.as_ref().map(|previous| previous.slots.clone()).unwrap_or_default()
    }

    /// The program that runs now, to go back to.
    pub fn running(&self) -> Option<Xdp> {
        Xdp::from_pin(self.source.join(PROGRAM), XdpAttachType::Interface).ok()
    }

    /// The state maps for a generation with room for so many buckets.
    pub fn maps(&self, capacity: u32) -> StateMaps {
        StateMaps {
            pins: Some(self.state.state()),
            capacity,
            block_sets: self.block_sets,
            hash_key: self.table.hash_key,
            epoch: self.table.epoch,
        }
    }

    /// Sets the counters and `per: rule` buckets of these counter slots to zero. Maps that begin anew begin
    /// with zeroes.
    pub fn zero_slots(&self, slots: &[u32]) -> Result<(), StateError> {
        let directory = self.state.state();
        let kept = |name: &'static str| {
            let path = directory.join(name);
            (!self.staged.contains(&name) && path.exists()).then_some(path)
        };
        let write = |path: &Path, source| StateError::Map { verb: "write", path: path.to_owned(), source };
        if let Some(path) = kept(RULE_COUNTERS)
            && let Some(data) = open(&path)?
        {
            let mut counters = PerCpuArray::<_, RuleCounters>::try_from(Map::PerCpuArray(data))
                .map_err(|source| write(&path, source))?;
            let cpus = nr_cpus().map_err(|(_, source)| write(&path, MapError::IoError(source)))?;
            for &slot in slots {
                let zeroes = PerCpuValues::try_from(vec![RuleCounters::default(); cpus])
                    .map_err(|source| write(&path, MapError::IoError(source)))?;
                counters.set(slot, zeroes, 0).map_err(|source| write(&path, source))?;
            }
        }
        if let Some(path) = kept(RULE_BUCKETS)
            && let Some(mut buckets) = open_array::<[u64; 8]>(&path)?
        {
            let limits = u32::try_from(MAX_LIMITS).unwrap_or(u32::MAX);
            for bucket in slots.iter().flat_map(|slot| slot * limits..(slot + 1) * limits) {
                buckets.set(bucket, [0; 8], 0).map_err(|source| write(&path, source))?;
            }
        }
        Ok(())
    }

    /// Pins a loaded program and its description beside those that run, ready to take their place.
    pub fn stage(&self, program: &mut Xdp, description: &Description) -> Result<(), StateError> {
        let directory = self.state.state();
        let path = generation::staged(&directory, PROGRAM);
        program.pin(&path).map_err(|source| StateError::Pin { path, source })?;
        description.pin(&generation::staged(&directory, description::NAME))
    }

    /// Records what was staged as what runs: called when the program is on every interface.
    pub fn commit(&mut self) -> io::Result<()> {
        generation::finish(&self.state.state())?;
        self.committed = true;
        Ok(())
    }

    /// Removes what nothing uses any more: the pins of other versions, and lists that were changed. What cannot be removed only costs
    /// memory until the next start tries again.
    pub fn retire(&self) {
        let own = self.state.state();
        if self.committed {
            let _ = lists::retire(&own);
        }
        for directory in self.state.versions().unwrap_or_default() {
            if self.committed && directory != own {
                let _ = generation::clear(&directory).and_then(|()| remove_directory(&directory));
            }
        }
    }

    /// What became of the state of an earlier start, if there is something to say.
    pub fn story(&self) -> Option<String> {
        let mut story = Vec::new();
        if let Some(version) = version(&self.source).filter(|_| self.is_upgrade()) {
            story.push(format!("version {version} of the pinned state is taken over"));
        }
        if let Some((old, new)) = self.resized {
            story.push(format!("the capacity for sources changed ({old} sets of buckets before, {new} now)"));
        }
        if let Some(error) = &self.unreadable {
            story.push(format!("the description of the last policy is of no use ({error})"));
        }
        if self.kept || !self.anew.is_empty() {
            let clause = |verb: &str, parts: &BTreeSet<Part>| {
                let names: Vec<_> = parts.iter().map(|part| part.name()).collect();
                (!names.is_empty()).then(|| format!("{verb} {}", names.join(", ")))
            };
            let clauses = [clause("kept:", &self.kept_parts), clause("begin anew:", &self.anew)];
            story.push(clauses.into_iter().flatten().collect::<Vec<_>>().join("; "));
        }
        (!story.is_empty()).then(|| story.join(": "))
    }

    /// Whether something of an earlier start is lost.
    pub fn begins_anew(&self) -> bool {
        !self.anew.is_empty()
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        let own = self.state.state();
        if self.is_upgrade() {
            // All that is there is of this start.
            let _ = generation::clear(&own);
            return;
        }
        for name in &self.made {
            let _ = fs::remove_file(own.join(name));
        }
        let _ = lists::forget(&own, &self.lists);
        let _ = generation::discard(&own);
    }
}
