use super::*;
use crate::{
    config::policy::AttachMode,
    network::{interfaces::Mode, links::tests::*},
};

fn names<'a>(course: &Course<'a>) -> Vec<&'a str> {
    course.new.iter().map(|(interface, _)| interface.name.as_str()).collect()
}

#[test]
fn an_interface_that_came_is_new_if_the_policy_means_it() {
    let existing = [
        interface(1, "lo", &[]),
        interface(2, "eth0", &[(40, Mode::Native)]),
        interface(3, "eth1", &[]),
        interface(4, "wlan0", &[]),
        interface(5, "wan", &[]),
    ];
    let mut wanted = wanted(&["eth*", "wan"]);
    wanted[1].mode = AttachMode::Generic;
    let course = course(&wanted, &existing, vec![pin(2, "eth0", Some(40))]);
    assert_eq!(names(&course), ["eth1", "wan"]);
    assert_eq!(course.new[1].1, AttachMode::Generic);
    assert_eq!((course.foreign.len(), course.renamed.len(), course.gone.len()), (0, 0, 0));
}

#[test]
fn an_interface_that_came_back_is_new_and_its_old_pin_is_gone() {
    let existing = [interface(9, "eth0", &[])];
    let stale = pin(2, "eth0", Some(40));
    let course = course(&wanted(&["eth0"]), &existing, vec![stale.clone()]);
    assert_eq!(names(&course), ["eth0"]);
    assert_eq!(course.gone, [stale]);
}

#[test]
fn a_pin_that_looks_dead_on_an_interface_that_is_there_stays() {
    // The program of its link was swapped between the two looks.
    let existing = [interface(2, "eth0", &[(41, Mode::Native)])];
    let course = course(&wanted(&["eth*"]), &existing, vec![pin(2, "eth0", Some(40))]);
    assert!(course.gone.is_empty() && course.new.is_empty(), "{course:?}");
}

#[test]
fn a_foreign_program_is_passed_over() {
    let existing = [interface(3, "eth1", &[(7, Mode::Native)])];
    let course = course(&wanted(&["eth*"]), &existing, Vec::new());
    assert!(course.new.is_empty());
    assert_eq!(course.foreign[0].interface, existing[0]);
    assert!(course.foreign[0].reason.contains("program id 7"), "{:?}", course.foreign);
}

#[test]
fn a_renamed_interface_keeps_its_link_whatever_its_name() {
    let existing = [interface(2, "wlan7", &[(40, Mode::Native)])];
    let ours = pin(2, "eth0", Some(40));
    let course = course(&wanted(&["eth0"]), &existing, vec![ours.clone()]);
    assert_eq!(course.renamed, [(ours, &existing[0])]);
    assert!(course.gone.is_empty() && course.new.is_empty());
}
