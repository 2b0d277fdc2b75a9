//! Replays the corpus of configurations, and seeded mutations of it.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_node::{Config, ConfigError};

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

/// Any text is a configuration or an error with a line within the text.
fn check(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else {
        return false;
    };
    let error = match Config::parse(text, None) {
        Ok(_) => return true,
        Err(error) => error,
    };
    if let ConfigError::Meaning { line, .. } = error {
        assert!(
            (1..=text.lines().count().max(1)).contains(&line),
            "{line} in {text:?}"
        );
    } else {
        let text = error.to_string();
        assert!(
            text.contains("line") || text.contains("nested too deeply"),
            "{text}"
        );
    }
    false
}

#[test]
fn corpus_is_read_or_refused_as_its_names_say() {
    for (name, bytes) in corpus("corpus/config") {
        assert_eq!(check(&bytes), !name.starts_with("bad-"), "{name}");
    }
}

#[test]
fn mutated_configurations_never_panic_and_errors_have_a_line() {
    let (files, mut random) = (corpus("corpus/config"), Random(0x0BAD_5EED));
    let mut read = 0;
    for round in 0..10_000 {
        let mut input = files[round % files.len()].1.clone();
        let other = random.below(files.len());
        mutate(&mut random, &mut input, &files[other].1);
        read += usize::from(check(&input));
    }
    assert!(read > 100, "{read}");
}
