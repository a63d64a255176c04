//! What only /sys and /proc know of an interface.

use std::{collections::BTreeSet, fs, path::PathBuf};

use super::super::host::cpus;
use crate::network::doctor::facts::Interrupts;

/// A device on its bus: the same in every network namespace.
fn device((bus, name): &(String, String)) -> PathBuf {
    PathBuf::from("/sys/bus").join(bus).join("devices").join(name)
}

/// The name of its driver.
pub(super) fn driver(parent: &(String, String)) -> Option<String> {
    let driver = fs::read_link(device(parent).join("driver")).ok()?;
    Some(driver.file_name()?.to_str()?.to_owned())
}

/// Its interrupts, or those of the device that it is a function of (virtio on PCI).
pub(super) fn interrupts(parent: &(String, String)) -> Option<Interrupts> {
    let path = fs::canonicalize(device(parent)).ok()?;
    let listed = path.ancestors().find_map(|path| fs::read_dir(path.join("msi_irqs")).ok())?;
    let numbers: Vec<_> = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let mut serving = BTreeSet::new();
    for number in &numbers {
        let list = fs::read_to_string(format!("/proc/irq/{number}/effective_affinity_list")).ok()?;
        serving.extend(cpus(&list));
    }
    Some(Interrupts { count: numbers.len(), cpus: serving.len() })
}

/// Receive queues of an interface that are spread by software (RPS). /sys/class/net may be that of another
/// network namespace, so its word counts only where it knows the interface by the same index.
pub(super) fn steered_queues(name: &str, index: u32) -> Option<usize> {
    let directory = PathBuf::from("/sys/class/net").join(name);
    let known: u32 = fs::read_to_string(directory.join("ifindex")).ok()?.trim().parse().ok()?;
    if known != index {
        return None;
    }
    let queues = fs::read_dir(directory.join("queues")).ok()?;
    let steered = queues
        .filter_map(|queue| fs::read_to_string(queue.ok()?.path().join("rps_cpus")).ok())
        .filter(|mask| mask.trim().chars().any(|digit| !matches!(digit, '0' | ',')));
    Some(steered.count())
}
