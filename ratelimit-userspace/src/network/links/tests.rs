use std::path::Path;

use super::{apply::agrees, *};
use crate::network::interfaces::Attached as Program;

pub(super) fn interface(index: u32, name: &str, programs: &[(u32, Mode)]) -> Interface {
    let programs =
        programs.iter().map(|&(program_id, mode)| Program { program_id, mode }).collect::<Vec<_>>();
    Interface { index, name: name.to_owned(), mtu: 1500, programs, ..Interface::default() }
}

pub(super) fn pin(index: u32, name: &str, program_id: Option<u32>) -> Pin {
    Pin { index, name: name.to_owned(), path: pin::file_name(index, name).into(), program_id }
}

pub(super) fn wanted(names: &[&str]) -> Vec<policy::Interface> {
    names.iter().map(|name| policy::Interface { name: (*name).to_owned(), mode: AttachMode::Auto }).collect()
}

fn links() -> Links {
    Links::new("links")
}

#[test]
fn an_interface_without_a_program_is_new() {
    let links = links();
    let plan = links
        .plan_over(&wanted(&["eth0"]), &[interface(2, "eth0", &[])], Vec::new(), Manner::Strict)
        .expect("a plan");
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(plan.steps[0].ours, None);
    assert!(plan.surplus.is_empty());
}

#[test]
fn our_own_link_is_recognised_by_its_program() {
    let links = links();
    let existing = [interface(2, "eth0", &[(40, Mode::Native)])];
    let ours = pin(2, "eth0", Some(40));
    let plan =
        links.plan_over(&wanted(&["eth0"]), &existing, vec![ours.clone()], Manner::Strict).expect("a plan");
    assert_eq!(plan.steps[0].ours, Some((ours, Mode::Native)));
}

#[test]
fn a_renamed_interface_keeps_its_link() {
    let links = links();
    let existing = [interface(2, "lan0", &[(40, Mode::Generic)])];
    let ours = pin(2, "eth0", Some(40));
    let plan =
        links.plan_over(&wanted(&["lan0"]), &existing, vec![ours.clone()], Manner::Strict).expect("a plan");
    assert_eq!(plan.steps[0].ours, Some((ours, Mode::Generic)));
}

#[test]
fn a_stale_pin_gives_way_to_the_new_one() {
    let links = links();
    // The interface went away and came back under the same index and name: the link is dead.
    let existing = [interface(2, "eth0", &[])];
    let mut stale = [pin(2, "eth0", Some(40)), pin(7, "gone0", Some(40))];
    for pin in &mut stale {
        pin.path = Path::new("links").join(&pin.path);
    }
    let plan =
        links.plan_over(&wanted(&["eth0"]), &existing, stale.to_vec(), Manner::Strict).expect("a plan");
    assert_eq!(plan.steps[0].ours, None);
    // Removing it after the new link was pinned under the same name would detach the new one.
    assert_eq!(plan.surplus, [(stale[1].clone(), None)]);
}

#[test]
fn an_interface_that_the_policy_drops_is_detached() {
    let links = links();
    let existing = [interface(2, "eth0", &[(40, Mode::Native)]), interface(3, "eth1", &[(40, Mode::Native)])];
    let pins = vec![pin(2, "eth0", Some(40)), pin(3, "eth1", Some(40))];
    let plan = links.plan_over(&wanted(&["eth1"]), &existing, pins, Manner::Strict).expect("a plan");
    assert_eq!(plan.surplus.len(), 1);
    assert_eq!(plan.surplus[0].1.as_ref().map(|interface| interface.name.as_str()), Some("eth0"));
}

#[test]
fn a_foreign_program_is_named_and_nothing_planned() {
    let links = links();
    let existing = [interface(2, "eth0", &[(4_000_000_000, Mode::Generic)])];
    let error = links
        .plan_over(&wanted(&["eth0"]), &existing, vec![pin(2, "eth0", Some(40))], Manner::Strict)
        .expect_err("foreign")
        .to_string();
    for part in ["eth0", "program id 4000000000", "generic", "xdpgeneric off"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_missing_interface_is_named_with_the_nearest() {
    let links = links();
    let existing = [interface(1, "lo", &[]), interface(2, "enp3s0", &[])];
    let error = links
        .plan_over(&wanted(&["enp3s1"]), &existing, Vec::new(), Manner::Strict)
        .expect_err("missing")
        .to_string();
    assert!(error.contains("enp3s1") && error.contains("did you mean enp3s0?"), "{error}");
    let error = links
        .plan_over(&wanted(&["wlan17"]), &existing, Vec::new(), Manner::Strict)
        .expect_err("missing")
        .to_string();
    assert!(error.contains("there are: lo, enp3s0"), "{error}");
}

#[test]
fn auto_keeps_the_mode_and_the_others_insist() {
    assert!(agrees(AttachMode::Auto, Mode::Generic) && agrees(AttachMode::Auto, Mode::Native));
    assert!(agrees(AttachMode::Native, Mode::Native) && !agrees(AttachMode::Native, Mode::Generic));
    assert!(agrees(AttachMode::Generic, Mode::Generic) && !agrees(AttachMode::Generic, Mode::Native));
}

#[test]
fn a_pattern_means_what_is_there_but_never_the_loopback_interface() {
    let links = links();
    let existing = [interface(1, "lo", &[]), interface(2, "eth0", &[]), interface(3, "wan", &[])];
    let wanted = wanted(&["*", "veth?"]);
    let plan = links.plan_over(&wanted, &existing, Vec::new(), Manner::Strict).expect("a plan");
    let names: Vec<_> = plan.steps.iter().map(|step| step.interface.name.as_str()).collect();
    assert_eq!(names, ["eth0", "wan"]);
    assert!(plan.steps.iter().all(|step| step.optional));
    assert_eq!(plan.unmatched, ["veth?"]);
}

#[test]
fn a_foreign_program_is_passed_over_if_only_a_pattern_means_its_interface() {
    let links = links();
    let existing = [interface(2, "eth0", &[(7, Mode::Native)]), interface(3, "eth1", &[])];
    let plan = links.plan_over(&wanted(&["eth*"]), &existing, Vec::new(), Manner::Strict).expect("a plan");
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(plan.skipped[0].interface, existing[0]);
    assert!(plan.skipped[0].reason.contains("interface eth0 already has"), "{:?}", plan.skipped);
}

#[test]
fn the_way_back_passes_over_what_is_missing_or_taken() {
    let links = links();
    let existing = [interface(2, "eth0", &[(40, Mode::Native)]), interface(3, "eth1", &[(7, Mode::Native)])];
    let pins = vec![pin(2, "eth0", Some(40))];
    let wanted = wanted(&["eth0", "eth1", "eth2"]);
    let plan = links.plan_over(&wanted, &existing, pins.clone(), Manner::Lenient).expect("a plan");
    assert_eq!(plan.steps.len(), 1);
    assert_eq!((plan.skipped.len(), plan.unmatched.as_slice()), (1, ["eth2".to_owned()].as_slice()));
    links.plan_over(&wanted, &existing, pins, Manner::Strict).expect_err("one is taken");
}
