//! Creates policies by name, with valid and invalid parameters.

use carina_ipcp::security::AuthStep;
use carina_time::Instant;

use super::*;
use crate::key::generate;

fn spec(name: &str, params: &[(&str, &str)]) -> PolicySpec {
    PolicySpec {
        name: name.into(),
        params: params
            .iter()
            .map(|(name, value)| (String::from(*name), String::from(*value)))
            .collect(),
    }
}

fn tools() -> Tools {
    let identity = generate("me", &mut Seeded::new(7)).expect("a key");
    let allowed = Allowed::parse(&identity.public_line(), "own").expect("a list");
    Tools::seeded(
        Credentials {
            password: Some(Secret::new(*b"long and winding")),
            identity: Some(Arc::new(identity)),
            allowed,
        },
        1,
    )
}

fn error<T>(result: Result<T, Cause>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn every_policy_of_the_list_can_be_made_with_its_defaults() {
    let mut tools = tools();
    let list = tools.list();
    assert_eq!(list.len(), 8);
    for (component, name, help, params) in list {
        assert!(help.ends_with('.'), "{component} {name}: {help:?}");
        let defaults: Vec<(&str, &str)> = params.iter().map(|row| (row.0, row.1)).collect();
        let spec = spec(name, &defaults);
        match component {
            "authentication" => assert!(tools.authenticator(&spec, true, b"").is_ok()),
            _ => {
                let protection = tools
                    .sdu_protection(&spec, true, Some(&[1; 32]))
                    .expect("made");
                assert_eq!(protection.is_none(), name == "none");
            }
        }
    }
    assert!(
        tools
            .sdu_protection(&spec("", &[]), true, None)
            .expect("none")
            .is_none()
    );
}

#[test]
fn errors_name_missing_and_wrong_parameters() {
    let mut tools = tools();
    let secret = Some(&[1; 32]);
    for (spec, words) in [
        (spec("rot13", &[]), "there are: none, crc32, lz4, aead"),
        (spec("crc32", &[("cipher", "x")]), "no parameter `cipher`"),
        (spec("aead", &[("cipher", "des")]), "aes-256-gcm or chacha"),
        (spec("aead", &[("compress", "zip")]), "compress is \"zip\""),
        (spec("lz4", &[("integrity", "md5")]), "none or crc32"),
        (spec("crc32", &[("lifetime_ms", "-1")]), "lifetime_ms"),
        (spec("crc32", &[("lifetime_ms", "60001")]), "at most 60000"),
    ] {
        let error = error(tools.sdu_protection(&spec, true, secret));
        assert!(error.contains(words), "{error}");
        let checked = (tools.params_check())("sdu-protection", &spec);
        assert_eq!(checked, Err(error.into()), "before there is an N-1 flow");
    }
    let keys =
        |text| (tools.params_check())("authentication", &spec("ed25519", &[("allowed", text)]));
    assert!(keys("x").is_err_and(|what| what.to_string().contains("allowed, key 1")));
    assert_eq!(keys(""), Ok(()));
    let no_secret = error(tools.sdu_protection(&spec("aead", &[]), true, None));
    assert!(no_secret.contains("needs a secret"), "{no_secret}");
    let mut poor = Tools::seeded(Credentials::default(), 1);
    for (name, words) in [
        ("password", "no password"),
        ("xor-password", "no password"),
        ("ed25519", "no key"),
    ] {
        let error = error(poor.authenticator(&spec(name, &[]), true, b""));
        assert!(error.contains(words), "{error}");
    }
    let bad = spec("ed25519", &[("allowed", "ed25519 x y")]);
    let error = error(tools.authenticator(&bad, true, b""));
    assert!(error.contains("allowed, key 1"), "{error}");
}

#[test]
fn credentials_do_not_show_the_password() {
    let shown = format!("{:?}", tools().credentials);
    assert!(
        !shown.contains("winding") && !shown.contains("108, 111"),
        "{shown}"
    );
}

#[test]
fn combinations_of_layers_work_end_to_end() {
    let mut tools = tools();
    for spec in [
        spec("crc32", &[("lifetime_ms", "50")]),
        spec("aead", &[("compress", "lz4"), ("lifetime_ms", "50")]),
        spec("aead", &[("cipher", "chacha20-poly1305")]),
        spec("lz4", &[("integrity", "crc32")]),
    ] {
        let mut end = |side| {
            let protection = tools
                .sdu_protection(&spec, side, Some(&[1; 32]))
                .expect("made");
            protection.expect("not none")
        };
        let (mut a, mut b) = (end(true), end(false));
        let mut pdu = b"abcabcabc".repeat(100);
        a.set_now(Instant::from_nanos(1_000_000_000));
        a.protect(&mut pdu).expect("sealed");
        b.set_now(Instant::from_nanos(5_000_000_000));
        b.unprotect(&mut pdu).expect("opened");
        assert_eq!(pdu, b"abcabcabc".repeat(100));
    }
}

#[test]
fn same_seed_gives_the_same_conversation() {
    let first = |seed| {
        let mut tools = tools();
        tools.random = Box::new(Seeded::new(seed));
        let mut side = tools
            .authenticator(&spec("ed25519", &[]), true, b"context")
            .expect("made");
        match side.step(Instant::ZERO, None) {
            AuthStep::Send(message) => message,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
}
