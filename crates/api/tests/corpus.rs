//! Replays the corpus of messages on `ipc.sock`, and seeded mutations of it.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::ipc::{FlowNotice, Reply, Request, decode, encode};

/// A small seeded generator (xorshift64*): the same seed gives the same inputs everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

/// Changes bytes, cuts, doubles and splices.
fn mutate(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(6) {
            0 if at < input.len() => input[at] = random.below(256) as u8,
            1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 => input.truncate(at),
            3 => input.insert(at, b"\"{}[]:,\\0-\n=.|"[random.below(14)]),
            4 => {
                let tail = input[at..].to_vec();
                input.extend(tail);
            }
            _ if !other.is_empty() => {
                let from = random.below(other.len());
                input.truncate(at);
                input.extend(&other[from..]);
            }
            _ => {}
        }
        input.truncate(8192);
    }
}

fn corpus(directory: &str) -> Vec<(String, Vec<u8>)> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut files: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// What any decoder of this crate may do with any bytes: refuse, or give a value that survives
/// being written and read again, with names within their limits.
fn check(input: &[u8]) -> bool {
    let request = decode::<Request>(input);
    if let Ok(request) = &request {
        assert_eq!(
            decode::<Request>(&encode(request).unwrap()).unwrap(),
            *request
        );
        if let Request::Register { name, .. } = request {
            assert!(carina_wire::check_name(name.as_str()).is_ok());
        }
    }
    let reply = decode::<Reply>(input);
    if let Ok(reply) = &reply {
        assert_eq!(decode::<Reply>(&encode(reply).unwrap()).unwrap(), *reply);
    }
    request.is_ok() || reply.is_ok() || decode::<FlowNotice>(input).is_ok()
}

#[test]
fn corpus_is_read_or_refused_as_its_names_say() {
    for (name, bytes) in corpus("corpus/ipc") {
        assert_eq!(check(&bytes), !name.starts_with("bad-"), "{name}");
    }
}

#[test]
fn mutated_messages_never_panic_and_survive_a_round_trip() {
    let (files, mut random) = (corpus("corpus/ipc"), Random(0x00C0_FFEE));
    let mut read = 0;
    for round in 0..40_000 {
        let mut input = files[round % files.len()].1.clone();
        let other = random.below(files.len());
        mutate(&mut random, &mut input, &files[other].1);
        read += usize::from(check(&input));
    }
    // Some mutations must get past the syntax, or they test nothing behind it.
    assert!(read > 100, "{read}");
}
