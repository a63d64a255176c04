//! Over how many CPUs an interface spreads its packets: the program runs where the queue's interrupt does.

use crate::{
    network::{
        doctor::{
            Finding,
            facts::{Channels, Device, Interrupts},
        },
        interfaces::Mode,
    },
    text::number,
};

/// One frame in so many lost is worth a warning.
const LOST: u64 = 1000;

pub(super) fn examine(device: &Device, cpus: usize) -> Vec<Finding> {
    [spread(device, cpus), interrupts(device, cpus), lost(device)].into_iter().flatten().collect()
}

fn spread(device: &Device, cpus: usize) -> Option<Finding> {
    let Device { name, channels, steered_queues, .. } = device;
    let Channels { receive, receive_max, combined } = (*channels)?;
    let kind = if combined { "combined" } else { "rx" };
    let possible = receive_max.min(u32::try_from(cpus).unwrap_or(u32::MAX));
    let more = format!("ethtool -L {name} {kind} {possible}");
    let generic = device.own().is_some_and(|own| own.mode == Mode::Generic);
    if receive == 1 && cpus > 1 {
        // In generic mode packets are handed to other CPUs before the program runs.
        if generic && steered_queues.is_some_and(|queues| queues > 0) {
            return Some(Finding::ok(
                "queues",
                name,
                "one receive queue, spread over CPUs in software (RPS)",
            ));
        }
        let finding = Finding::warning("queues", name, "one receive queue, so one CPU runs the program").why(
            format!("a flood that one of the {cpus} CPUs cannot shed is lost together with what is not shed"),
        );
        return Some(if possible > 1 {
            finding.remedy(more)
        } else if generic {
            finding.remedy(format!("echo {} > /sys/class/net/{name}/queues/rx-0/rps_cpus", all(cpus)))
        } else {
            finding.remedy("give the (virtual) card more queues, where the host or the driver allows")
        });
    }
    let what = format!("{receive} receive queues for {cpus} CPUs");
    if receive < possible {
        return Some(Finding::note("queues", name, what).why("more CPUs could shed").remedy(more));
    }
    Some(Finding::ok(
        "queues",
        name,
        if receive == 1 { "one receive queue, one CPU".to_owned() } else { what },
    ))
}

/// The bits of all CPUs, as the kernel takes them: groups of 32 bits in hexadecimal.
pub(super) fn all(cpus: usize) -> String {
    let mut groups = vec!["ffffffff".to_owned(); cpus / 32];
    if !cpus.is_multiple_of(32) {
        groups.insert(0, format!("{:x}", (1_u64 << (cpus % 32)) - 1));
    }
    groups.join(",")
}

fn interrupts(device: &Device, cpus: usize) -> Option<Finding> {
    let Interrupts { count, cpus: serving } = device.interrupts?;
    let queues = device.channels?.receive;
    (queues > 1 && cpus > 1 && count > 1 && serving == 1).then(|| {
        Finding::warning(
            "interrupts",
            &device.name,
            format!("all {count} interrupts of its {queues} queues go to one CPU"),
        )
        .why("so one CPU runs the program, however many queues there are")
        .remedy("run irqbalance, or spread them: echo CPU > /proc/irq/N/smp_affinity_list")
    })
}

fn lost(device: &Device) -> Option<Finding> {
    let Device { name, received, missed, .. } = device;
    if *missed == 0 {
        return None;
    }
    let what = format!(
        "{} frames were lost in the card for want of room, of {} since it came up",
        number(missed),
        number(received + missed)
    );
    if missed.saturating_mul(LOST) < received.saturating_add(*missed) {
        return Some(Finding::note("lost_frames", name, what));
    }
    Some(
        Finding::warning("lost_frames", name, what)
            .why("they came faster than its queues were emptied, before any program saw them")
            .remedy(format!("more queues (ethtool -L {name}) and larger rings (ethtool -G {name} rx N)")),
    )
}
