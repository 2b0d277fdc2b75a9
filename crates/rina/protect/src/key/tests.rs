//! Valid and invalid key files.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::random::Seeded;

#[test]
fn key_that_is_stored_is_loaded_and_is_private() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("key");
    let identity = generate("a.member", &mut Seeded::new(1)).expect("a key");
    store(&identity, &path).expect("stored");
    let mode = fs::metadata(&path).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = load(&path).expect("loaded");
    assert_eq!(again.public_line(), identity.public_line());
    assert_eq!(again.name(), "a.member");
    let error = store(&identity, &path).expect_err("it is there");
    assert!(error.to_string().contains("exists"), "{error}");
    for mode in [0o644, 0o640, 0o602] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        let error = load(&path).expect_err("others may read it");
        assert!(matches!(error, KeyError::Exposed { .. }), "{error}");
        assert!(error.to_string().contains("chmod 600"));
    }
}

#[test]
fn errors_say_what_and_where() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = load(&dir.path().join("absent")).expect_err("no file");
    assert!(error.to_string().contains("absent"), "{error}");

    let line = generate("m", &mut Seeded::new(1))
        .expect("a key")
        .public_line();
    let key = line.split(' ').nth(1).expect("a key");
    for (text, words) in [
        (
            format!("{line}\n\n{line}"),
            "list:3: this key appears twice",
        ),
        (format!("# x\nrsa {key} m"), "list:2: `ed25519 KEY NAME`"),
        (format!("ed25519 {key}"), "list:1: the key has no name"),
        (format!("ed25519 {key} two words"), "one word"),
        (format!("ed25519 {} m", &key[..40]), "32 bytes"),
        ("ed25519 !!! m".into(), "32 bytes"),
        (
            format!("ed25519 {} m", base64::encode(&[0; 32])),
            "list:1: the key is all zeros",
        ),
        (format!("ed25519-private {key} m"), "private key"),
    ] {
        let error = Allowed::parse(&text, "list").expect_err("a bad list");
        assert!(error.to_string().contains(words), "{error}");
    }
    let good = Allowed::parse(&format!(" {line} # ours\n\n# none\n"), "list").expect("good");
    assert!(!good.is_empty());
    for name in ["", "two words", "a;b", "a#b", "a\n"] {
        assert!(generate(name, &mut Seeded::new(1)).is_err(), "{name:?}");
    }
}

#[test]
fn private_half_is_not_shown() {
    let identity = generate("m", &mut Seeded::new(1)).expect("a key");
    let shown = format!("{identity:?}");
    assert!(shown.contains(&base64::encode(identity.public())));
    assert!(!shown.contains(&base64::encode(&identity.seed)));
}
