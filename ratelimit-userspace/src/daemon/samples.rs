//! Shed packets that the program tells of, passed on to whoever follows the events.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use tracing::warn;

use super::reload::text;
use crate::{
    admin::{
        handle::Handle,
        schema::{Shed, What},
    },
    network::{
        description::protocol_name,
        interfaces,
        samples::{Sample, Samples},
        state::StateDir,
    },
};

/// How long the names of interfaces are taken to be right.
const NAMES_KEPT: Duration = Duration::from_secs(5);

/// Passes samples on as long as it lives.
#[derive(Debug)]
pub(super) struct Telling(JoinHandle<()>);

/// Names of interfaces by their indexes.
#[derive(Debug, Default)]
struct Names {
    names: HashMap<u32, String>,
    read: Option<Instant>,
}

// === impl Telling ===

impl Telling {
    /// Begins with the samples of these pins; `None`: they cannot be read, and that was told.
    pub(super) fn begin(state: &StateDir, handle: Handle) -> Option<Self> {
        match Samples::open(state) {
            Ok(samples) => Some(Self(tokio::spawn(tell(samples, handle)))),
            Err(error) => {
                warn!("shed packets are not told as events: {}", text(&error));
                None
            }
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn tell(mut samples: Samples, handle: Handle) {
    let mut names = Names::default();
    loop {
        match samples.next().await {
            Ok(sample) => handle.publish(What::Shed(shed(sample, &mut names))),
            Err(error) => {
                warn!("shed packets are not told as events any more: {error}");
                return;
            }
        }
    }
}

fn shed(sample: Sample, names: &mut Names) -> Shed {
    Shed {
        reason: sample.reason.name().to_owned(),
        rule: sample.rule,
        limit: sample.limit.map(|index| index + 1),
        source: sample.source,
        destination: sample.destination,
        protocol: sample.protocol.map(protocol_name),
        source_port: sample.source_port,
        destination_port: sample.destination_port,
        length: sample.length,
        weight: sample.weight,
        interface: names.of(sample.interface),
    }
}

// === impl Names ===

impl Names {
    fn of(&mut self, index: u32) -> String {
        if self.read.is_none_or(|read| read.elapsed() > NAMES_KEPT) {
            self.read = Some(Instant::now());
            let interfaces = interfaces::list().unwrap_or_default();
            self.names = interfaces.into_iter().map(|interface| (interface.index, interface.name)).collect();
        }
        self.names.get(&index).cloned().unwrap_or_else(|| format!("interface {index}"))
    }
}
