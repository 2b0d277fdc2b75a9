//! Valid and invalid protected PDUs.

use proptest::prelude::*;

use super::*;
use crate::random::{Random, Seeded};
use carina_time::Instant;

type MakeOuter = fn(bool) -> Outer;

const SECRET: [u8; 32] = [7; 32];

fn aead_of(cipher: Cipher, secret: &[u8; 32], is_initiator: bool) -> Outer {
    let aead = Aead::new(cipher, secret, is_initiator).expect("keys");
    Outer::Aead(Box::new(aead))
}

/// All kinds of protection, each with both ends of a flow.
fn pairs() -> Vec<(&'static str, Protection, Protection)> {
    let mut pairs = Vec::new();
    for is_compressing in [false, true] {
        for lifetime in [None, Some(Lifetime::new(100))] {
            let outers: [(&str, MakeOuter); 4] = [
                ("plain", |_| Outer::Plain),
                ("crc32", |_| Outer::Crc32),
                ("aes", |side| aead_of(Cipher::Aes256Gcm, &SECRET, side)),
                ("chacha", |side| {
                    aead_of(Cipher::ChaCha20Poly1305, &SECRET, side)
                }),
            ];
            for (name, outer) in outers {
                let end = |side| Protection::new(outer(side), lifetime.clone(), is_compressing);
                pairs.push((name, end(true), end(false)));
            }
        }
    }
    pairs
}

fn protected(protection: &mut Protection, pdu: &[u8]) -> Vec<u8> {
    let mut out = pdu.to_vec();
    protection.protect(&mut out).expect("sealed");
    out
}

fn opened(protection: &mut Protection, pdu: &[u8]) -> Result<Vec<u8>, Reject> {
    let mut out = pdu.to_vec();
    protection.unprotect(&mut out).map(|()| out)
}

fn sample(len: usize, is_dull: bool) -> Vec<u8> {
    let mut out: Vec<u8> = (0..len).map(|index| b'a' + (index % 7) as u8).collect();
    if !is_dull {
        Seeded::new(len as u64).fill(&mut out).expect("seeded");
    }
    out
}

#[test]
fn pdus_of_every_length_come_back_both_ways() {
    for (name, mut a, mut b) in pairs() {
        for len in (0..130).chain([1400, 9000, 65_535, 70_000]) {
            for is_dull in [false, true] {
                let pdu = sample(len, is_dull);
                let sealed = protected(&mut a, &pdu);
                assert!(sealed.len() >= PROTECTED_MIN);
                assert!(sealed.len() <= (len + a.overhead()).max(PROTECTED_MIN));
                assert_eq!(opened(&mut b, &sealed).as_ref(), Ok(&pdu), "{name} {len}");
                let back = protected(&mut b, &pdu);
                assert_eq!(opened(&mut a, &back).as_ref(), Ok(&pdu), "{name} {len}");
            }
        }
    }
}

#[test]
fn changed_byte_or_lost_byte_is_noticed_wherever_it_is() {
    for (name, mut a, mut b) in pairs() {
        if name == "plain" {
            continue;
        }
        for len in [0, 1, 40, 200] {
            let good = protected(&mut a, &sample(len, true));
            for at in 0..good.len() {
                for flip in [1, 0x80, 0xff] {
                    let mut bad = good.clone();
                    bad[at] ^= flip;
                    assert!(opened(&mut b, &bad).is_err(), "{name} {len} {at}");
                }
                assert!(opened(&mut b, &good[..at]).is_err(), "{name} cut at {at}");
                assert!(opened(&mut b, &good[at + 1..]).is_err(), "{name} from {at}");
            }
            // The rejected PDUs have not moved the window or changed other state.
            assert!(opened(&mut b, &good).is_ok(), "{name} {len}");
        }
    }
}

#[test]
fn encrypted_pdus_are_accepted_once_in_any_order_in_the_window() {
    for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        let mut a = Protection::new(aead_of(cipher, &SECRET, true), None, false);
        let mut b = Protection::new(aead_of(cipher, &SECRET, false), None, false);
        let pdus: Vec<Vec<u8>> = (0..2000u32)
            .map(|number| protected(&mut a, &number.to_be_bytes()))
            .collect();
        let newest = 1500;
        assert!(opened(&mut b, &pdus[newest]).is_ok());
        for number in (0..newest).rev() {
            let answer = opened(&mut b, &pdus[number]);
            if newest - number < WINDOW as usize {
                assert_eq!(answer, Ok((number as u32).to_be_bytes().to_vec()));
            } else {
                assert_eq!(answer, Err(Reject::Replayed), "{number}");
            }
        }
        for pdu in &pdus[..=newest] {
            assert_eq!(opened(&mut b, pdu), Err(Reject::Replayed));
        }
    }
}

#[test]
fn reflected_pdu_and_pdu_under_another_key_are_forged() {
    let other = [8; 32];
    let mut a = Protection::new(aead_of(Cipher::Aes256Gcm, &SECRET, true), None, false);
    let pdu = protected(&mut a, b"hello");
    assert_eq!(opened(&mut a, &pdu), Err(Reject::Forged), "reflected");
    for (cipher, secret) in [
        (Cipher::Aes256Gcm, &other),
        (Cipher::ChaCha20Poly1305, &SECRET),
    ] {
        let mut b = Protection::new(aead_of(cipher, secret, false), None, false);
        assert_eq!(opened(&mut b, &pdu), Err(Reject::Forged));
    }
}

#[test]
fn same_pdu_never_looks_the_same_twice() {
    let mut a = Protection::new(aead_of(Cipher::Aes256Gcm, &SECRET, true), None, false);
    let (first, second) = (protected(&mut a, &[0; 100]), protected(&mut a, &[0; 100]));
    assert_ne!(first[..100], second[..100]);
}

#[test]
fn pdus_reordered_across_a_key_change_are_accepted() {
    let end = |side| {
        Aead::with_epochs_of(4, Cipher::Aes256Gcm, &SECRET, side)
            .map(|aead| Protection::new(Outer::Aead(Box::new(aead)), None, false))
            .expect("keys")
    };
    let (mut a, mut b) = (end(true), end(false));
    let mut pdus: Vec<Vec<u8>> = (0..200u8)
        .map(|number| protected(&mut a, &[number]))
        .collect();
    for pair in pdus.chunks_mut(4) {
        pair.reverse();
    }
    for pdu in &pdus {
        assert!(opened(&mut b, pdu).is_ok());
    }
    for pdu in &pdus {
        assert_eq!(opened(&mut b, pdu), Err(Reject::Replayed));
    }
}

#[test]
fn counters_end_before_they_repeat() {
    let mut aead = Aead::new(Cipher::Aes256Gcm, &SECRET, true).expect("keys");
    aead.skip_to(u64::MAX - 1);
    let mut a = Protection::new(Outer::Aead(Box::new(aead)), None, false);
    let last = protected(&mut a, b"last");
    assert_eq!(a.protect(&mut b"more".to_vec()), Err(Reject::Exhausted));
    // The receiver does not derive keys for a counter of the far future.
    let mut b = Protection::new(aead_of(Cipher::Aes256Gcm, &SECRET, false), None, false);
    assert_eq!(opened(&mut b, &last), Err(Reject::Forged));
}

#[test]
fn late_pdu_is_expired() {
    let end = || Protection::new(Outer::Crc32, Some(Lifetime::new(50)), false);
    let (mut a, mut b) = (end(), end());
    b.set_now(Instant::from_nanos(7_000_000_000));
    let (quick, slow) = (protected(&mut a, b"x"), protected(&mut a, b"y"));
    assert!(opened(&mut b, &quick).is_ok());
    b.set_now(Instant::from_nanos(7_051_000_000));
    assert_eq!(opened(&mut b, &slow), Err(Reject::Expired));
}

#[test]
fn compression_makes_dull_pdus_shorter_and_others_no_longer() {
    let mut a = Protection::new(Outer::Plain, None, true);
    assert!(protected(&mut a, &sample(1400, true)).len() < 100);
    assert_eq!(protected(&mut a, &sample(1400, false)).len(), 1401);
}

#[test]
fn bomb_inflates_to_no_more_than_it_says_and_64_kib() {
    let mut b = Protection::new(Outer::Plain, None, true);
    // The densest LZ4 block: one literal, then a match with the longest possible length.
    let mut bomb = vec![0x1f, 0, 1, 0];
    bomb.resize(60_000, 255);
    bomb.extend([0, 0x50, 0, 0, 0, 0, 0]);
    for inflated in [0u16, 1, 1000, u16::MAX] {
        let mut pdu = bomb.clone();
        pdu.extend(inflated.to_be_bytes());
        pdu.push(COMPRESSED);
        assert_eq!(opened(&mut b, &pdu), Err(Reject::Inflated));
        assert!(b.scratch.len() <= usize::from(u16::MAX));
    }
}

#[test]
fn block_that_is_shorter_than_it_says_is_refused() {
    let (mut a, mut b) = (
        Protection::new(Outer::Plain, None, true),
        Protection::new(Outer::Plain, None, true),
    );
    let mut pdu = protected(&mut a, &sample(1000, true));
    let padding = usize::from(pdu[pdu.len() - 1] & PADDING);
    let at = pdu.len() - INFO_LEN - padding - LEN_LEN;
    pdu[at..at + 2].copy_from_slice(&1001u16.to_be_bytes());
    assert_eq!(opened(&mut b, &pdu), Err(Reject::Inflated));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for (_, _, mut end) in pairs() {
            let _ = opened(&mut end, &bytes);
        }
    }
}
