//! Fuzz targets: untrusted bytes for all decoders of this crate.

use std::sync::Arc;

use carina_ipcp::security::{AuthStep, Authenticator, SduProtection};
use carina_time::Instant;

use crate::auth::{Ed25519, Password, Stretched};
use crate::key::{Allowed, generate};
use crate::random::Seeded;
use crate::sdu_protection::{Aead, Cipher, Lifetime, Outer, Protection};

/// Removes the protection from `data`; the first byte selects the kind of protection. If that
/// succeeds without a key, protecting and unprotecting the result again must succeed. With a key it
/// must not succeed.
pub fn unprotect(data: &[u8]) {
    let Some(opened) = open(data) else {
        return;
    };
    // Uses new machines, because the one that removed the protection has learned the clock of its
    // sender.
    let (mut sender, mut receiver) = (protection(data[0]), protection(data[0]));
    let mut again = opened.clone();
    sender.protect(&mut again).expect("nothing is exhausted");
    receiver.unprotect(&mut again).expect("own work");
    assert_eq!(again, opened);
}

/// Whether [`unprotect`] can remove the protection from `data`.
pub fn reads_unprotect(data: &[u8]) -> bool {
    open(data).is_some()
}

fn open(data: &[u8]) -> Option<Vec<u8>> {
    let (choice, pdu) = data.split_first()?;
    let mut opened = pdu.to_vec();
    let is_open = protection(*choice).unprotect(&mut opened).is_ok();
    assert!(!is_open || choice & 2 == 0, "forged without the key");
    is_open.then_some(opened)
}

fn protection(choice: u8) -> Protection {
    let aead = |cipher| {
        let aead = Aead::new(cipher, &[1; 32], false).expect("a key of the right length");
        Outer::Aead(Box::new(aead))
    };
    let outer = match choice & 3 {
        0 => Outer::Plain,
        1 => Outer::Crc32,
        2 => aead(Cipher::Aes256Gcm),
        _ => aead(Cipher::ChaCha20Poly1305),
    };
    let lifetime = (choice & 4 != 0).then(|| Lifetime::new(100));
    Protection::new(outer, lifetime, choice & 8 != 0)
}

/// Passes `data` as messages, each preceded by its length in one byte, to one side of a
/// conversation. The first byte selects the conversation. No conversation that needs a key may
/// succeed.
pub fn auth(data: &[u8]) {
    play(data);
}

/// Whether the first message of `data` gets an answer.
pub fn reads_auth(data: &[u8]) -> bool {
    play(data)
}

fn play(data: &[u8]) -> bool {
    let Some((choice, mut rest)) = data.split_first() else {
        return false;
    };
    let mut side = side(*choice);
    if choice & 1 != 0 {
        assert!(matches!(side.step(Instant::ZERO, None), AuthStep::Send(_)));
    }
    let mut first = None;
    while let Some((len, more)) = rest.split_first() {
        let (message, more) = more.split_at(more.len().min(usize::from(*len)));
        rest = more;
        let step = side.step(Instant::ZERO, Some(message));
        assert!(!matches!(step, AuthStep::Done { .. }), "done without a key");
        first.get_or_insert(matches!(step, AuthStep::Send(_)));
    }
    first.unwrap_or(false)
}

fn side(choice: u8) -> Box<dyn Authenticator> {
    let mut random = Seeded::new(1);
    let is_initiator = choice & 1 != 0;
    if choice & 2 == 0 {
        let key = Stretched::of_key([3; 32]);
        let made = Password::new(&key, is_initiator, b"context", &mut random);
        return Box::new(made.expect("seeded"));
    }
    let identity = generate("member", &mut random).expect("a good name");
    let allowed = Allowed::parse(&identity.public_line(), "own").expect("own line");
    let (identity, allowed) = (Arc::new(identity), Arc::new(allowed));
    let made = Ed25519::new(identity, allowed, is_initiator, b"context", &mut random);
    Box::new(made.expect("seeded"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn unprotect_survives_anything(data in prop::collection::vec(any::<u8>(), 0..200)) {
            super::unprotect(&data);
        }

        #[test]
        fn auth_survives_anything(
            choice in 0..4u8,
            messages in prop::collection::vec(
                (1..=3u8, 0..=4u8, prop::collection::vec(any::<u8>(), 0..170)),
                0..4,
            ),
        ) {
            let mut data = vec![choice];
            for (kind, number, fields) in messages {
                data.push(3 + fields.len() as u8);
                data.extend([1, kind, number]);
                data.extend(fields);
            }
            super::auth(&data);
        }
    }
}
