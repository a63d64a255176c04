use super::*;

#[test]
fn the_mac_is_that_of_the_standard() {
    // RFC 4231, test case 2, whose key is shorter than a block, filled up as HMAC does.
    let mut key = [0; 32];
    key[..4].copy_from_slice(b"Jefe");
    let tag = hexadecimal(&hmac(&key), b"what do ya want for nothing?");
    assert_eq!(tag, "5bdcc146bf60754e6a042426089575c7");
}

#[test]
fn a_secret_is_the_same_under_the_same_key_only() {
    let keyed = Keyed::new([7; 32]);
    let tag = keyed.secret(b"s3cr3t");
    assert_eq!(tag.len(), 32);
    assert!(tag.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)));
    assert_eq!(tag, Keyed::new([7; 32]).secret(b"s3cr3t"));
    assert_ne!(tag, keyed.secret(b"s3cr3u"));
    assert_ne!(tag, Keyed::new([8; 32]).secret(b"s3cr3t"));
    assert_ne!(tag, hexadecimal(&hmac(&[7; 32]), b"s3cr3t"), "the key is derived for this purpose");
}

#[test]
fn values_that_are_too_long_stay_different() {
    let keyed = Keyed::new([7; 32]);
    let longest = "a".repeat(LONGEST_VALUE);
    assert_eq!(keyed.text(longest.as_bytes()), longest);
    let (longer, other) = (format!("{longest}a"), format!("{longest}b"));
    let tag = keyed.text(longer.as_bytes());
    assert_eq!(tag.len(), "hmac:".len() + 32);
    assert_ne!(tag, keyed.text(other.as_bytes()));
    assert!(!tag.ends_with(&keyed.secret(longer.as_bytes())));
}

#[test]
fn values_that_are_no_text_stay_different() {
    let keyed = Keyed::new([7; 32]);
    assert_ne!(keyed.text(b"\xff"), keyed.text(b"\xfe"));
    assert!(keyed.text(b"\xff").starts_with("hmac:"));
    for text in ["", ":|{}%\0", "é"] {
        assert_eq!(keyed.text(text.as_bytes()), text);
    }
}

#[test]
fn keys_do_not_show() {
    assert_eq!(format!("{:?}", Keyed::new([7; 32])), "Keyed { .. }");
}
