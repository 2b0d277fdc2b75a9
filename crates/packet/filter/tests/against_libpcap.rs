//! Compares the meaning of every filter with libpcap's.

use carina_filter::Filter;
use carina_random::Random;

use crate::generate;
use crate::libpcap::Libpcap;

/// Filters as people write them.
const WRITTEN: &str = include_str!("written.txt");

/// Errors by which libpcap refuses filters that are valid here. It has 16 words of scratch memory
/// for arithmetic, and takes the index in a right operand, as in `len / ip[0]`, for the operand.
const ONLY_LIBPCAP: [&str; 4] = [
    "out of registers",
    "division by zero",
    "modulus by zero",
    "shift by more than 31 bits",
];

/// Counts of comparisons.
#[derive(Debug, Default)]
struct Compared {
    filters: u64,
    pairs: u64,
    accepted: u64,
    /// Frames about which libpcap with its optimizer differs from libpcap without it.
    optimizer: u64,
}

impl Compared {
    fn compare(&mut self, library: &Libpcap, text: &str, packets: &[Vec<u8>]) {
        // Compiles without the optimizer, which sometimes removes a test that would reject a short
        // packet.
        let plain = library.compile(text, false);
        let plain = plain.unwrap_or_else(|error| panic!("libpcap refuses {text:?}: {error}"));
        let optimized = library.compile(text, true).ok();
        let ours = Filter::compile(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        self.filters += 1;
        for packet in packets {
            let (found, expected) = (ours.matches(packet), plain.matches(packet));
            assert_eq!(found, expected, "{text:?} of {packet:02x?}");
            self.pairs += 1;
            self.accepted += u64::from(found);
            // The optimizer refuses a filter that no packet can pass.
            let optimized = optimized
                .as_ref()
                .is_some_and(|program| program.matches(packet));
            self.optimizer += u64::from(optimized != expected);
        }
    }
}

fn packets(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| generate::packet(random)).collect()
}

#[test]
fn generated_filters_decide_as_in_libpcap() {
    let Some(library) = Libpcap::load() else {
        return;
    };
    let seed = std::env::var("CARINA_FILTER_SEED");
    let seed = seed.ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let filters = std::env::var("CARINA_FILTER_COUNT");
    let filters = filters
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000);
    let mut random = Random::new(seed);
    let mut compared = Compared::default();
    let mut packets_now = packets(&mut random, 200);
    for number in 0..filters {
        if number % 50 == 0 {
            packets_now = packets(&mut random, 200);
        }
        let filter = generate::filter(&mut random);
        if let Err(error) = library.compile(&filter, false) {
            assert!(
                ONLY_LIBPCAP.contains(&error.as_str()),
                "{error}: {filter:?}"
            );
            continue;
        }
        compared.compare(&library, &filter, &packets_now);
    }
    println!("{compared:?}");
    assert!(compared.filters * 10 > filters * 9, "{compared:?}");
    let share = compared.accepted as f64 / compared.pairs as f64;
    assert!((0.05..0.95).contains(&share), "{compared:?}");
}

#[test]
fn written_filters_decide_as_in_libpcap() {
    let Some(library) = Libpcap::load() else {
        return;
    };
    let mut random = Random::new(7);
    let packets = packets(&mut random, 5000);
    let mut compared = Compared::default();
    for filter in WRITTEN.lines().filter(|line| !line.starts_with('#')) {
        compared.compare(&library, filter, &packets);
    }
    println!("{compared:?}");
    assert!(compared.filters > 60, "{compared:?}");
}

#[test]
fn what_libpcap_refuses_is_refused() {
    let Some(library) = Libpcap::load() else {
        return;
    };
    for text in crate::errors::REFUSED {
        assert!(
            library.compile(text.0, false).is_err(),
            "libpcap takes {:?}",
            text.0
        );
    }
}
