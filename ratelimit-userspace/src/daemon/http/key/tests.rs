use super::*;

#[test]
fn a_state_directory_keeps_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let key = obtain(Some(&state)).unwrap();
    assert_eq!(obtain(Some(&state)).unwrap(), key);
    let mode = fs::metadata(state.join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn without_a_directory_every_key_is_new() {
    assert_ne!(obtain(None).unwrap(), obtain(None).unwrap());
}

#[test]
fn a_key_of_another_length_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(FILE);
    write(&file, &[7; 32]).unwrap();
    fs::write(&file, [7; 31]).unwrap();
    assert!(matches!(obtain(Some(directory.path())), Err(KeyError::Damaged(path)) if path == file));
}

#[test]
fn a_key_that_others_can_read_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(FILE);
    write(&file, &[7; 32]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(obtain(Some(directory.path())), Err(KeyError::Exposed(path)) if path == file));
}
