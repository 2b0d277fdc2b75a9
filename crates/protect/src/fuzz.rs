//! Entry points for fuzzing: hostile bytes against everything that reads them.

use std::sync::Arc;

use carina_ipcp::seal::{AuthStep, Authenticator, Sealer};

use crate::auth::{Ed25519, Password, Stretched};
use crate::key::{Allowed, generate};
use crate::random::Seeded;
use crate::seal::{Aead, Cipher, Lifetime, Outer, Protection};

/// Opens `data` under every protection; the first byte chooses. What opens without a key must
/// survive being sealed and opened again; what needs a key must not open at all.
pub fn unprotect(data: &[u8]) {
    let Some((choice, pdu)) = data.split_first() else {
        return;
    };
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
    let is_encrypted = matches!(outer, Outer::Aead(_));
    let lifetime = (choice & 4 != 0).then(|| Lifetime::new(100));
    let mut protection = Protection::new(outer, lifetime, choice & 8 != 0);
    let mut opened = pdu.to_vec();
    let answer = protection.open(&mut opened);
    assert!(!is_encrypted || answer.is_err(), "forged without the key");
    if answer.is_ok() {
        let mut again = opened.clone();
        protection.seal(&mut again).expect("nothing is exhausted");
        protection.open(&mut again).expect("own work");
        assert_eq!(again, opened);
    }
}

/// Plays `data` as messages (each with its length in front, one byte) to one side of a conversation
/// that the first byte chooses. Nobody without a key gets to the end.
pub fn auth(data: &[u8]) {
    let Some((choice, mut rest)) = data.split_first() else {
        return;
    };
    let mut random = Seeded::new(1);
    let is_initiator = choice & 1 != 0;
    let mut side: Box<dyn Authenticator> = if choice & 2 == 0 {
        let key = Stretched::of_key([3; 32]);
        let made = Password::new(&key, is_initiator, b"context", &mut random);
        Box::new(made.expect("seeded"))
    } else {
        let identity = generate("member", &mut random).expect("a good name");
        let allowed = Allowed::parse(&identity.public_line(), "own").expect("own line");
        let (identity, allowed) = (Arc::new(identity), Arc::new(allowed));
        let made = Ed25519::new(identity, allowed, is_initiator, b"context", &mut random);
        Box::new(made.expect("seeded"))
    };
    if is_initiator {
        assert!(matches!(side.step(0, None), AuthStep::Send(_)));
    }
    while let Some((len, more)) = rest.split_first() {
        let (message, more) = more.split_at(more.len().min(usize::from(*len)));
        rest = more;
        let step = side.step(0, Some(message));
        assert!(!matches!(step, AuthStep::Done { .. }), "done without a key");
    }
}
