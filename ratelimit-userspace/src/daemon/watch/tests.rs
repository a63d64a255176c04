use std::{fs, os::unix::fs::symlink};

use super::*;

/// Far longer than a change takes to be noticed, and never waited for unless one is lost.
const LOST: Duration = Duration::from_secs(20);

async fn noticed(watch: &mut Watch) -> bool {
    tokio::time::timeout(LOST, watch.changed()).await.is_ok()
}

#[tokio::test]
async fn every_way_to_replace_a_file_is_one_change() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yaml");
    fs::write(&file, "a").unwrap();
    let mut watch = Watch::new();
    watch.follow([file.clone()]);

    fs::write(&file, "in place").unwrap();
    assert!(noticed(&mut watch).await, "written in place");

    let other = directory.path().join("other");
    fs::write(&other, "renamed").unwrap();
    fs::rename(&other, &file).unwrap();
    assert!(noticed(&mut watch).await, "renamed over");

    fs::remove_file(&file).unwrap();
    fs::write(&file, "again").unwrap();
    assert!(noticed(&mut watch).await, "deleted and created again");
    assert!(watch.events.try_recv().is_err(), "nothing is left to notice");
}

#[tokio::test]
async fn a_swapped_symbolic_link_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("..1"), directory.path().join("..2"));
    for generation in [&first, &second] {
        fs::create_dir(generation).unwrap();
        fs::write(generation.join("rules.yaml"), generation.display().to_string()).unwrap();
    }
    let data = directory.path().join("..data");
    symlink(&first, &data).unwrap();
    let file = directory.path().join("rules.yaml");
    symlink("..data/rules.yaml", &file).unwrap();
    let mut watch = Watch::new();
    watch.follow([file.clone()]);

    let staged = directory.path().join("..data_tmp");
    symlink(&second, &staged).unwrap();
    fs::rename(&staged, &data).unwrap();
    assert!(noticed(&mut watch).await);
    assert_eq!(fs::read_to_string(&file).unwrap(), second.display().to_string());
}

#[tokio::test]
async fn reading_a_file_is_no_change() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yaml");
    fs::write(&file, "a").unwrap();
    let mut watch = Watch::new();
    watch.follow([file.clone()]);
    fs::read(&file).unwrap();
    fs::write(&file, "b").unwrap();
    assert!(noticed(&mut watch).await);
    fs::read(&file).unwrap();
    let nothing = tokio::time::timeout(QUIET * 2, watch.changed()).await;
    assert!(nothing.is_err());
}

#[tokio::test]
async fn a_directory_that_is_replaced_is_watched_again() {
    let root = tempfile::tempdir().unwrap();
    let (directory, aside) = (root.path().join("rules.d"), root.path().join("aside"));
    let file = directory.join("rules.yaml");
    fs::create_dir(&directory).unwrap();
    let mut watch = Watch::new();
    let files = [root.path().join("main.yaml"), directory.clone()];
    assert!(watch.follow(files.clone()));
    assert!(!watch.follow(files.clone()));

    fs::rename(&directory, &aside).unwrap();
    fs::create_dir(&directory).unwrap();
    assert!(noticed(&mut watch).await);
    assert!(watch.follow(files.clone()), "it is another directory");
    fs::write(&file, "new").unwrap();
    assert!(noticed(&mut watch).await, "written in the new directory");
    assert!(!watch.follow(files));
}

#[tokio::test]
async fn a_directory_that_comes_back_is_watched_again() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("rules.d");
    fs::create_dir(&directory).unwrap();
    let mut watch = Watch::new();
    watch.follow([directory.clone()]);
    fs::remove_dir(&directory).unwrap();
    assert!(noticed(&mut watch).await);
    assert!(watch.follow([directory.clone()]), "the one above it");
    fs::create_dir(&directory).unwrap();
    assert!(noticed(&mut watch).await);
    assert!(watch.follow([directory.clone()]));
    fs::write(directory.join("a.yaml"), "new").unwrap();
    assert!(noticed(&mut watch).await);
}

#[tokio::test]
async fn the_file_behind_a_symbolic_link_is_watched() {
    let (names, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (name, file) = (names.path().join("rules.yaml"), files.path().join("real.yaml"));
    fs::write(&file, "a").unwrap();
    symlink(&file, &name).unwrap();
    let mut watch = Watch::new();
    watch.follow([name]);
    fs::write(&file, "b").unwrap();
    assert!(noticed(&mut watch).await);
}

#[tokio::test]
async fn a_change_is_told_although_nobody_waited_for_it_to_be_quiet() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yaml");
    let mut watch = Watch::new();
    watch.follow([file.clone()]);
    fs::write(&file, "a").unwrap();
    while watch.pending.is_none() {
        let _ = tokio::time::timeout(Duration::from_millis(10), watch.changed()).await;
    }
    assert!(noticed(&mut watch).await);
}
