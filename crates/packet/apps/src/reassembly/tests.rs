//! Tests of fragments in any order, overlapping, impossible, or too many.

use super::*;

const BOUNDS: Bounds = Bounds {
    packets: 4,
    fragments: 3,
    bytes: 4000,
    time: Duration::from_secs(30),
};

fn part(offset: usize, is_last: bool, payload: &[u8]) -> Fragment<'_> {
    Fragment {
        head: b"head",
        offset,
        is_last,
        ecn: 0,
        payload,
    }
}

fn add(reassembly: &mut Reassembly<u32>, key: u32, fragment: Fragment<'_>) -> Outcome {
    reassembly.add(key, &fragment, Instant::ZERO, || 7)
}

#[test]
fn mark_of_any_fragment_counts_for_all_that_know_it() {
    let marked = |ecn| Fragment {
        ecn,
        ..part(0, false, &[1; 8])
    };
    let last = |ecn| Fragment {
        ecn,
        ..part(8, true, &[2; 8])
    };
    for (one, other, expected) in [
        (2, 3, Some(true)),
        (3, 1, Some(true)),
        (2, 2, Some(false)),
        (0, 0, Some(false)),
        (0, 3, None),
        (3, 0, None),
    ] {
        let mut reassembly = Reassembly::new(BOUNDS);
        assert_eq!(add(&mut reassembly, 1, marked(one)), Outcome::Kept);
        let found = match add(&mut reassembly, 1, last(other)) {
            Outcome::Complete(whole) => Some(whole.is_marked),
            outcome => {
                assert_eq!(outcome, Outcome::Discarded(Discard::Congested));
                None
            }
        };
        assert_eq!(found, expected, "{one} and {other}");
        assert_eq!(reassembly.bytes(), 0);
    }
}

#[test]
fn fragments_in_any_order_make_the_packet() {
    let bytes: Vec<u8> = (0..20).collect();
    let parts = [(0, false, 0..8), (8, false, 8..16), (16, true, 16..20)];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut reassembly = Reassembly::new(BOUNDS);
        for (number, at) in order.into_iter().enumerate() {
            let (offset, is_last, range) = parts[at].clone();
            let outcome = add(&mut reassembly, 1, part(offset, is_last, &bytes[range]));
            match number {
                2 => {
                    let head = b"head".to_vec();
                    let payload = bytes.clone();
                    let is_marked = false;
                    let whole = Whole {
                        head,
                        payload,
                        is_marked,
                    };
                    assert_eq!(outcome, Outcome::Complete(whole));
                }
                _ => assert_eq!(outcome, Outcome::Kept),
            }
        }
        assert_eq!(reassembly.bytes(), 0);
    }
}

#[test]
fn overlap_discards_the_packet_and_what_follows() {
    let cases = [
        (part(0, false, &[1; 16]), part(8, false, &[2; 8])),
        (part(8, false, &[2; 8]), part(0, false, &[1; 16])),
        (part(8, true, &[2; 8]), part(16, false, &[1; 8])),
        (part(8, true, &[2; 8]), part(16, true, &[1; 8])),
        (part(16, false, &[2; 8]), part(8, true, &[1; 8])),
        (part(0, false, &[1; 8]), part(0, false, &[2; 8])),
    ];
    for (one, two) in cases {
        let mut reassembly = Reassembly::new(BOUNDS);
        assert_eq!(add(&mut reassembly, 1, one), Outcome::Kept);
        let outcome = add(&mut reassembly, 1, two);
        assert_eq!(outcome, Outcome::Discarded(Discard::Overlap));
        let outcome = add(&mut reassembly, 1, part(40, true, &[3]));
        assert_eq!(outcome, Outcome::PassedOver);
        assert_eq!(reassembly.bytes(), PACKET_BYTES);
    }
    let mut reassembly = Reassembly::new(BOUNDS);
    add(&mut reassembly, 1, part(0, false, &[1; 8]));
    let again = add(&mut reassembly, 1, part(0, false, &[1; 8]));
    assert_eq!(again, Outcome::PassedOver);
    let last = add(&mut reassembly, 1, part(8, true, &[1; 8]));
    assert!(matches!(last, Outcome::Complete(_)));
}

#[test]
fn impossible_fragments_discard_their_packet() {
    for (fragment, why) in [
        (part(0, false, &[1; 9]), Discard::Length),
        (part(0, false, &[]), Discard::Length),
        (part(65_528, true, &[1; 8]), Discard::TooLong),
    ] {
        let mut reassembly = Reassembly::new(BOUNDS);
        let outcome = add(&mut reassembly, 1, fragment);
        assert_eq!(outcome, Outcome::Discarded(why));
    }
    let mut reassembly = Reassembly::new(BOUNDS);
    for at in 0..3 {
        add(&mut reassembly, 1, part(at * 16, false, &[1; 8]));
    }
    let outcome = add(&mut reassembly, 1, part(48, false, &[1; 8]));
    assert_eq!(outcome, Outcome::Discarded(Discard::TooMany));
}

#[test]
fn flood_of_packets_that_never_end_keeps_to_the_bounds() {
    let mut reassembly = Reassembly::new(BOUNDS);
    for key in 0..1000 {
        add(&mut reassembly, key, part(8, false, &[1; 800]));
        assert!(reassembly.bytes() <= BOUNDS.bytes);
        assert!(reassembly.packets.len() <= BOUNDS.packets);
        assert_eq!(reassembly.places.len(), reassembly.packets.len());
    }
    assert!(reassembly.evicted() >= 996);
    let none = Bounds {
        packets: 0,
        ..BOUNDS
    };
    let outcome = add(&mut Reassembly::new(none), 1, part(0, false, &[1; 8]));
    assert!(matches!(outcome, Outcome::Discarded(_)));
}

#[test]
fn packets_that_stay_incomplete_are_given_up_in_time() {
    let mut reassembly = Reassembly::new(BOUNDS);
    let (first, late) = (part(0, false, &[1; 8]), part(8, false, &[2; 8]));
    reassembly.add(1, &first, Instant::from_secs(1), || 0);
    reassembly.add(2, &late, Instant::from_secs(2), || 0);
    reassembly.add(3, &late, Instant::from_secs(3), || 0);
    let mut expired = Vec::new();
    reassembly.expire(Instant::from_secs(32), |key, first| {
        expired.push((key, first.map(|first| first.payload.len())));
    });
    expired.sort_unstable();
    assert_eq!(expired, [(1, Some(8)), (2, None)]);
    assert_eq!(reassembly.packets.len(), 1);
    reassembly.expire(Instant::from_secs(33), |_, _| {});
    assert_eq!(reassembly.bytes(), 0);
}
