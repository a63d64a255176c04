use super::*;

#[test]
fn runs_are_summed_up_by_their_median() {
    let Summary { median: middle, runs, spread } = Summary::of(&[300.0, 100.0, 110.0, 90.0, 100.0]).unwrap();
    assert_eq!(runs, 5);
    assert!((middle - 100.0).abs() < 1e-9, "{middle}");
    assert!((spread - 2.1).abs() < 1e-9, "{spread}");
    assert_eq!(median(&[1.0, 2.0, 4.0, 8.0]), Some(3.0));
    assert!(Summary::of(&[]).is_none());
}

#[test]
fn a_bound_belongs_to_what_it_allows() {
    let goal = |figure, bound| Goal { what: "speed".to_owned(), figure, bound };
    assert!(goal(Some(1.0), Bound::AtMost(1.0)).met());
    assert!(!goal(Some(1.1), Bound::AtMost(1.0)).met());
    assert!(goal(Some(1.0), Bound::AtLeast(1.0)).met());
    assert!(!goal(Some(0.9), Bound::AtLeast(1.0)).met());
    assert!(!goal(Some(f64::NAN), Bound::AtMost(1.0)).met());
    assert!(!goal(Some(f64::NAN), Bound::AtLeast(1.0)).met());
    assert!(!goal(None, Bound::AtLeast(0.0)).met());
}
