//! Conversations that succeed, and conversations with wrong messages.

use std::sync::Arc;

use super::*;
use crate::key::{Allowed, Identity, generate};
use crate::random::Seeded;
use carina_time::Instant;

/// A function that creates either side of a conversation.
type Make = Box<dyn Fn(bool, &[u8], u64) -> Box<dyn Authenticator>>;

fn password(key: u8) -> Make {
    Box::new(move |is_initiator, context, seed| {
        let key = Stretched::of_key([key; 32]);
        let made = Password::new(&key, is_initiator, context, &mut Seeded::new(seed));
        Box::new(made.expect("seeded"))
    })
}

fn identity(name: &str) -> Arc<Identity> {
    let seed = name.bytes().map(u64::from).sum();
    Arc::new(generate(name, &mut Seeded::new(seed)).expect("a key"))
}

fn ed25519(initiator: &'static str, responder: &'static str, allowed: &[&str]) -> Make {
    let lines: Vec<String> = allowed
        .iter()
        .map(|name| identity(name).public_line())
        .collect();
    let allowed = Arc::new(Allowed::parse(&lines.join("\n"), "list").expect("a list"));
    Box::new(move |is_initiator, context, seed| {
        let own = identity(if is_initiator { initiator } else { responder });
        let random = &mut Seeded::new(seed);
        let made = Ed25519::new(own, allowed.clone(), is_initiator, context, random);
        Box::new(made.expect("seeded"))
    })
}

fn policies() -> Vec<(&'static str, Make)> {
    vec![
        ("password", password(1)),
        ("ed25519", ed25519("alice", "bob", &["alice", "bob"])),
    ]
}

/// The result of one side.
#[derive(Debug, Default, PartialEq)]
struct End {
    done: Option<(Option<[u8; 32]>, String)>,
    failed: Option<String>,
}

impl End {
    fn take(&mut self, step: AuthStep) -> Option<Vec<u8>> {
        match step {
            AuthStep::Send(message) => Some(message),
            AuthStep::Done {
                last,
                secret,
                identity,
            } => {
                self.done = Some((secret, identity));
                last
            }
            AuthStep::Fail(reason) => {
                self.failed = Some(reason);
                None
            }
        }
    }
}

/// Runs a conversation. `wire` may change each message; it gets the message's number, from 0.
/// Returns both results, and all messages as they were sent.
fn run(
    mut a: Box<dyn Authenticator>,
    mut b: Box<dyn Authenticator>,
    wire: &mut dyn FnMut(usize, &mut Vec<u8>),
) -> (End, End, Vec<Vec<u8>>) {
    let (mut at_a, mut at_b, mut sent) = (End::default(), End::default(), Vec::new());
    let mut message = at_a.take(a.step(Instant::ZERO, None));
    while let Some(mut bytes) = message {
        sent.push(bytes.clone());
        wire(sent.len() - 1, &mut bytes);
        message = if sent.len() % 2 == 1 {
            at_b.take(b.step(Instant::ZERO, Some(&bytes)))
        } else {
            at_a.take(a.step(Instant::ZERO, Some(&bytes)))
        };
    }
    (at_a, at_b, sent)
}

fn honest(make: &Make, seed: u64) -> (End, End, Vec<Vec<u8>>) {
    run(
        make(true, b"context", seed),
        make(false, b"context", seed + 1000),
        &mut |_, _| {},
    )
}

#[test]
fn honest_sides_share_a_secret_and_know_each_other() {
    for (name, make) in policies() {
        let (a, b, messages) = honest(&make, 1);
        let (a, b) = (a.done.expect("done"), b.done.expect("done"));
        assert!(a.0.is_some());
        assert_eq!(a.0, b.0, "{name}");
        let names = if name == "password" {
            ["", ""]
        } else {
            ["bob", "alice"]
        };
        assert_eq!([a.1, b.1], names);
        assert_eq!(messages.len(), if name == "password" { 4 } else { 3 });
        let (other, ..) = honest(&make, 2);
        assert_ne!(other.done.expect("done").0, a.0, "fresh each time");
    }
}

#[test]
fn policy_none_lets_all_in_and_verifies_no_identity() {
    let (mut a, mut b) = (Nobody, Nobody);
    for step in [
        a.step(Instant::ZERO, None),
        b.step(Instant::ZERO, None),
        b.step(Instant::ZERO, Some(&[])),
    ] {
        let mut end = End::default();
        assert_eq!(end.take(step), None);
        assert_eq!(end.done, Some((None, String::new())));
    }
    assert!(matches!(
        a.step(Instant::ZERO, Some(b"x")),
        AuthStep::Fail(_)
    ));
}

#[test]
fn every_single_byte_of_every_message_counts() {
    for (name, make) in policies() {
        let messages = honest(&make, 1).2;
        for (number, message) in messages.iter().enumerate() {
            for at in 0..message.len() {
                for flip in [1u8, 0x80] {
                    let (a, b, _) = run(
                        make(true, b"context", 1),
                        make(false, b"context", 1001),
                        &mut |index, bytes| {
                            if index == number {
                                bytes[at] ^= flip;
                            }
                        },
                    );
                    check_refused(name, number, at, &a, &b);
                }
            }
            for len in 0..message.len() {
                let (a, b, _) = run(
                    make(true, b"context", 1),
                    make(false, b"context", 1001),
                    &mut |index, bytes| {
                        if index == number {
                            bytes.truncate(len);
                        }
                    },
                );
                check_refused(name, number, len, &a, &b);
            }
        }
    }
}

/// Checks that the receiver of the changed message, or of the next one, refuses it, and that no
/// side ends with a key that the other side does not have.
fn check_refused(name: &str, number: usize, at: usize, a: &End, b: &End) {
    // The exchange ignores the top bit of an X25519 key (RFC 7748, section 5), but the transcript
    // includes it.
    let place = format!("{name}: message {}, byte {at}", number + 1);
    assert!(a.failed.is_some() || b.failed.is_some(), "{place}");
    assert!(a.done.is_none() || b.done.is_none(), "{place}");
}

#[test]
fn repeated_message_gets_the_same_answer_again() {
    for (_, make) in policies() {
        let (mut a, mut b) = (make(true, b"context", 1), make(false, b"context", 2));
        let AuthStep::Send(first) = a.step(Instant::ZERO, None) else {
            panic!("a first message")
        };
        assert_eq!(a.step(Instant::ZERO, None), AuthStep::Send(first.clone()));
        let second = b.step(Instant::ZERO, Some(&first));
        assert_eq!(b.step(Instant::ZERO, Some(&first)), second);
        let AuthStep::Send(second) = second else {
            panic!("a second message")
        };
        let third = a.step(Instant::ZERO, Some(&second));
        assert_eq!(a.step(Instant::ZERO, Some(&second)), third);
        let mut end = End::default();
        let third = end.take(third).expect("a third message");
        let done = b.step(Instant::ZERO, Some(&third));
        assert_eq!(b.step(Instant::ZERO, Some(&third)), done);
        assert!(matches!(done, AuthStep::Done { .. }));
        // An earlier message is out of order now.
        assert!(matches!(
            b.step(Instant::ZERO, Some(&first)),
            AuthStep::Fail(_)
        ));
        assert!(
            matches!(b.step(Instant::ZERO, Some(&third)), AuthStep::Fail(_)),
            "the end"
        );
    }
}

#[test]
fn messages_of_another_conversation_are_of_no_use() {
    for (name, make) in policies() {
        let old = honest(&make, 1).2;
        // An attacker replays the old initiator's messages to a new responder.
        let mut b = make(false, b"context", 77);
        for (index, message) in old.iter().enumerate().step_by(2) {
            let step = b.step(Instant::ZERO, Some(message));
            assert!(!matches!(step, AuthStep::Done { .. }), "{name}: {index}");
        }
        // The attacker also replays the old responder's messages to a new initiator.
        let mut a = make(true, b"context", 78);
        let mut end = End::default();
        end.take(a.step(Instant::ZERO, None));
        for message in old.iter().skip(1).step_by(2) {
            end.take(a.step(Instant::ZERO, Some(message)));
        }
        assert_eq!(end.done, None, "{name}");
        assert!(end.failed.is_some(), "{name}");
    }
}

#[test]
fn own_messages_coming_back_are_refused() {
    for (name, make) in policies() {
        let mut a = make(true, b"context", 1);
        let mut end = End::default();
        let first = end.take(a.step(Instant::ZERO, None)).expect("a message");
        assert!(
            matches!(a.step(Instant::ZERO, Some(&first)), AuthStep::Fail(_)),
            "{name}"
        );
        // Two simultaneous conversations: the attacker answers each with the member's messages of
        // the other.
        let (mut a, mut b) = (make(true, b"context", 1), make(false, b"context", 2));
        let first = end.take(a.step(Instant::ZERO, None)).expect("a message");
        let second = end
            .take(b.step(Instant::ZERO, Some(&first)))
            .expect("a message");
        assert!(
            matches!(b.step(Instant::ZERO, Some(&second)), AuthStep::Fail(_)),
            "{name}"
        );
    }
}

#[test]
fn another_context_or_no_authentication_is_refused() {
    for (name, make) in policies() {
        let (a, b, _) = run(
            make(true, b"dif one", 1),
            make(false, b"dif two", 2),
            &mut |_, _| {},
        );
        assert!(a.done.is_none() && b.done.is_none(), "{name}");
        assert!(matches!(
            make(false, b"", 1).step(Instant::ZERO, None),
            AuthStep::Fail(_)
        ));
    }
    let (a, b) = (password(1), ed25519("alice", "bob", &["alice", "bob"]));
    let (_, refused, _) = run(a(true, b"", 1), b(false, b"", 1), &mut |_, _| {});
    let reason = refused.failed.expect("refused");
    assert!(reason.contains("another authentication policy"), "{reason}");
}

#[test]
fn the_responder_refuses_a_wrong_password_before_its_own_proof() {
    let (right, wrong) = (password(1), password(2));
    let (a, b, messages) = run(wrong(true, b"", 1), right(false, b"", 2), &mut |_, _| {});
    assert_eq!(messages.len(), 3);
    assert!(a.done.is_none() && b.failed.is_some());
    assert_ne!(Stretched::new(b"a").0, Stretched::new(b"b").0);
}

#[test]
fn member_with_the_same_key_is_refused() {
    let make = ed25519("alice", "alice", &["alice", "bob"]);
    let (initiator, ..) = honest(&make, 1);
    let reason = initiator.failed.expect("refused");
    assert!(reason.contains("this member's own key"), "{reason}");
}

#[test]
fn key_that_is_not_allowed_is_refused_with_its_text() {
    let make = ed25519("alice", "bob", &["bob", "carol"]);
    let (a, b, _) = honest(&make, 1);
    assert_eq!(a.done.expect("alice trusts bob").1, "bob");
    let reason = b.failed.expect("bob does not know alice");
    let line = identity("alice").public_line();
    let key = line.split(' ').nth(1).expect("a key");
    assert!(reason.contains(key), "{reason}");
}

#[test]
fn an_allowed_key_cannot_sign_the_exchange_of_another() {
    // Mallory, who is allowed, intercepts the exchange between alice and bob and signs alice's
    // exchange as his own. He sees everything that is signed, but does not know the secret. So he
    // cannot make the MAC.
    let make = ed25519("alice", "bob", &["alice", "bob", "mallory"]);
    let mallory = identity("mallory");
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let (a, b, _) = run(
        make(true, b"context", 1),
        make(false, b"context", 2),
        &mut |index, bytes| {
            if index == 2 {
                let (first, second) = (&seen[0][3..35], &seen[1][3..35]);
                let bob = &seen[1][35..67];
                let label = b"carina ed25519 1";
                let transcript = message::hash(&[label, b"context", first, second, bob]);
                let transcript = message::hash(&[&transcript, mallory.public()]);
                let text = [b"initiator ".as_slice(), &transcript].concat();
                bytes[3..35].copy_from_slice(mallory.public());
                bytes[35..99].copy_from_slice(&mallory.sign(&text));
            }
            seen.push(bytes.clone());
        },
    );
    assert!(a.done.is_some() && b.done.is_none());
    let reason = b.failed.expect("refused");
    assert!(
        reason.contains("`mallory` has signed another exchange"),
        "{reason}"
    );
}

#[test]
fn ephemeral_key_of_low_order_is_refused() {
    let make = ed25519("alice", "bob", &["alice", "bob"]);
    for low in [[0u8; 32], {
        let mut one = [0; 32];
        one[0] = 1;
        one
    }] {
        let mut b = make(false, b"context", 1);
        let mut message = vec![1, 2, 1];
        message.extend(low);
        assert!(matches!(
            b.step(Instant::ZERO, Some(&message)),
            AuthStep::Fail(_)
        ));
    }
}
