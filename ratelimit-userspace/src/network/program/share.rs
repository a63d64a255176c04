//! Large policy maps that stay as they are from one generation to the next: they are pinned under their
//! contents, and found there. See [`state::lists`].

use std::{fmt::Write as _, path::Path, path::PathBuf};

use aya::Ebpf;
use ratelimit_common::policy::prefilter::{CHUNK_WORDS, CHUNKS};
use sha2::{Digest as _, Sha256};

use super::LoadError;
use crate::network::{
    compile::Compiled,
    lists::{prefilter::Prefilter, trie::Node},
    state::{self, Layout, lists},
};

/// Nodes from which on a trie is shared. Filling a smaller one takes less than a millisecond.
const LARGE: usize = 1024;

/// A large map of a generation.
pub(super) struct Shared {
    /// Its name in the object.
    pub(super) map: &'static str,
    /// Its pin.
    pub(super) path: PathBuf,
    /// Whether it is there already.
    pub(super) found: bool,
}

/// The large maps that a policy needs, and which of them are pinned in `directory`.
pub(super) fn look(directory: &Path, compiled: &Compiled) -> Vec<Shared> {
    let Compiled { sources, destinations, lists, .. } = compiled;
    let mut shared = Vec::new();
    for (map, nodes, octets) in [
        ("sources_v4", &sources.v4, 4),
        ("sources_v6", &sources.v6, 16),
        ("destinations_v4", &destinations.v4, 4),
        ("destinations_v6", &destinations.v6, 16),
        ("listed_v4", &lists.v4, 4),
        ("listed_v6", &lists.v6, 16),
    ] {
        if nodes.len() < LARGE {
            continue;
        }
        let entries = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        shared.extend(Shared::of(directory, map, Layout::trie(octets, entries), |digest| {
            for node in nodes {
                add_node(digest, node);
            }
        }));
        let prefilter = match map {
            "listed_v4" => Some(("prefilter_v4", &lists.prefilter_v4)),
            "listed_v6" => Some(("prefilter_v6", &lists.prefilter_v6)),
            _ => None,
        };
        shared.extend(prefilter.and_then(|(map, prefilter)| {
            let chunk = u32::try_from(CHUNK_WORDS * size_of::<u64>()).unwrap_or(u32::MAX);
            let layout = Layout::array(chunk, CHUNKS);
            Shared::of(directory, map, layout, |digest| add_prefilter(digest, prefilter))
        }));
    }
    shared
}

/// Pins those that are new, now that they are filled.
pub(super) fn pin(ebpf: &Ebpf, shared: &[Shared]) -> Result<(), LoadError> {
    for Shared { map, path, .. } in shared.iter().filter(|shared| !shared.found) {
        let pinned = ebpf.map(map).ok_or(LoadError::Object { kind: "map", name: map })?.pin(path);
        pinned.map_err(|source| LoadError::Pin { map, source })?;
    }
    Ok(())
}

// === impl Shared ===

impl Shared {
    /// A map of these contents; `None` if something else is pinned in its place, which then stays alone.
    fn of(
        directory: &Path,
        map: &'static str,
        layout: Layout,
        contents: impl FnOnce(&mut Sha256),
    ) -> Option<Self> {
        let mut digest = Sha256::new();
        contents(&mut digest);
        let mut name = String::new();
        for byte in &digest.finalize()[..16] {
            let _ = write!(name, "{byte:02x}");
        }
        let path = lists::path(directory, map, &name);
        let found = match state::open(&path) {
            Ok(Some(pinned)) if Layout::of(&pinned).is_ok_and(|found| found == layout) => true,
            Ok(None) => false,
            Ok(Some(_)) | Err(_) => return None,
        };
        Some(Self { map, path, found })
    }
}

fn add_node(digest: &mut Sha256, node: &Node<u32>) {
    let Node { network, length, outermost: _, bits } = node;
    let mut bytes = [0; 21];
    bytes[..16].copy_from_slice(&network.to_be_bytes());
    bytes[16] = *length;
    bytes[17..].copy_from_slice(&bits.to_be_bytes());
    digest.update(bytes);
}

fn add_prefilter(digest: &mut Sha256, prefilter: &Prefilter) {
    let mut bytes = [0; CHUNK_WORDS * size_of::<u64>()];
    for (index, chunk) in prefilter.chunks() {
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(chunk) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        digest.update(index.to_be_bytes());
        digest.update(bytes);
    }
}
