//! Passes SDUs through a delimiter, a channel and an assembler.

use carina_efcp::Delivered;
use carina_efcp::delimiting::{
    Assembler, AssemblerConfig, Delimiter, DelimiterConfig, Delimiting, Refusal,
};
use carina_wire::{Bytes, Payload};
use proptest::prelude::*;

fn pair(
    udf_max: usize,
    in_order: bool,
    is_reliable: bool,
    msg_boundaries: bool,
) -> (Delimiter<Bytes>, Assembler<Bytes>) {
    let delimiter = Delimiter::new(DelimiterConfig {
        policy: Delimiting::Standard,
        udf_max,
        in_order,
        msg_boundaries,
        concatenation: true,
    });
    let assembler = Assembler::new(AssemblerConfig {
        policy: Delimiting::Standard,
        in_order,
        is_reliable,
        partial_delivery: false,
        bytes_max: 1 << 20,
    });
    (delimiter, assembler)
}

fn udfs(delimiter: &mut Delimiter<Bytes>) -> Vec<Bytes> {
    delimiter.flush().expect("there are buffers");
    let udfs = std::iter::from_fn(|| delimiter.poll()).collect();
    assert!(delimiter.is_empty());
    udfs
}

fn deliver(assembler: &mut Assembler<Bytes>, udf: Bytes, seq: u64, gap_before: bool) {
    assembler.on_udf(Delivered {
        udf,
        seq,
        gap_before,
    });
}

/// Joins the pieces of the assembler into SDUs; an unfinished SDU is omitted.
fn sdus(assembler: &mut Assembler<Bytes>) -> Vec<Vec<u8>> {
    let (mut sdus, mut present) = (Vec::new(), Vec::new());
    while let Some(piece) = assembler.poll() {
        piece.sdu.append_to(&mut present);
        if !piece.more {
            sdus.push(std::mem::take(&mut present));
        }
    }
    sdus
}

/// An SDU whose bytes depend on its number and their position.
fn sdu(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

/// Lengths of SDUs: many small, some at the limits of a UDF, some long.
fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![
        4 => 0_usize..40,
        3 => 30_usize..140,
        1 => 100_usize..5000,
    ];
    prop::collection::vec(length, 1..40)
}

fn write_all(delimiter: &mut Delimiter<Bytes>, sdus: &[Vec<u8>], piece: usize) {
    for sdu in sdus {
        let mut rest = &sdu[..];
        // Long SDUs are written in pieces.
        while piece > 0 && rest.len() > piece {
            let (head, tail) = rest.split_at(piece);
            let head = Bytes::from(head.to_vec());
            delimiter.write(head, true).expect("a piece is taken");
            rest = tail;
        }
        let last = Bytes::from(rest.to_vec());
        delimiter.write(last, false).expect("the rest is taken");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_goes_in_comes_out(
        lengths in lengths(),
        udf_max in 16_usize..200,
        piece in prop_oneof![Just(0_usize), 1_usize..500],
        in_order: bool,
        is_reliable: bool,
        shuffle in any::<u64>(),
    ) {
        let (mut delimiter, mut assembler) = pair(udf_max, in_order, is_reliable, true);
        let written: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(n, len)| sdu(n, *len)).collect();
        write_all(&mut delimiter, &written, piece);
        let mut udfs = udfs(&mut delimiter);
        prop_assert!(udfs.iter().all(|udf| udf.len() <= udf_max));
        if !in_order {
            let mut state = shuffle;
            udfs.sort_by_cached_key(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                state >> 20
            });
        }
        for (seq, udf) in udfs.into_iter().enumerate() {
            deliver(&mut assembler, udf, seq as u64, false);
        }
        let (mut got, mut written) = (sdus(&mut assembler), written);
        if !in_order {
            got.sort();
            written.sort();
        }
        prop_assert_eq!(got, written);
        let counters = assembler.counters();
        prop_assert_eq!(counters.malformed + counters.incomplete + counters.too_long, 0);
        prop_assert_eq!(counters.sdus, lengths.len() as u64);
    }

    #[test]
    fn a_lost_udf_costs_its_own_sdus_only(
        lengths in lengths(),
        lost in any::<prop::sample::Index>(),
        in_order: bool,
        signalled: bool,
    ) {
        let (mut delimiter, mut assembler) = pair(100, in_order, false, true);
        let written: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(n, len)| sdu(n, *len)).collect();
        write_all(&mut delimiter, &written, 0);
        let udfs = udfs(&mut delimiter);
        let lost = lost.index(udfs.len());
        // A lost UDF can destroy this much at most: a part of one SDU, or several small SDUs.
        let share = udfs[lost].len();
        for (seq, udf) in udfs.into_iter().enumerate() {
            if seq != lost {
                deliver(&mut assembler, udf, seq as u64, signalled && seq == lost + 1);
            }
        }
        let got = sdus(&mut assembler);
        let mut rest = written.iter();
        for sdu in &got {
            prop_assert!(!in_order || rest.any(|written| written == sdu), "not written: {sdu:?}");
            prop_assert!(written.contains(sdu));
        }
        let missing = written.len() - got.len();
        prop_assert!(missing >= 1 && missing <= share.div_ceil(2), "{missing} missing");
    }

    #[test]
    fn a_stream_keeps_its_bytes(lengths in lengths(), udf_max in 16_usize..200) {
        let (mut delimiter, mut assembler) = pair(udf_max, true, true, false);
        let written: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(n, len)| sdu(n, *len)).collect();
        write_all(&mut delimiter, &written, 0);
        for udf in udfs(&mut delimiter) {
            assert!(udf.len() <= udf_max);
            deliver(&mut assembler, udf, 0, false);
        }
        prop_assert_eq!(sdus(&mut assembler).concat(), written.concat());
    }
}

#[test]
fn headers_are_as_drawn() {
    let (mut delimiter, _) = pair(16, true, true, true);
    let write = |delimiter: &mut Delimiter<Bytes>, sdus: &[&[u8]]| {
        let sdus: Vec<Vec<u8>> = sdus.iter().map(|sdu| sdu.to_vec()).collect();
        write_all(delimiter, &sdus, 0);
        let udfs = udfs(delimiter);
        let bytes = udfs.iter().map(|udf| udf.as_slice().to_vec());
        bytes.collect::<Vec<Vec<u8>>>()
    };
    assert_eq!(write(&mut delimiter, &[&[7, 8]]), [vec![0x00, 7, 8]]);
    assert_eq!(
        write(&mut delimiter, &[&[7], &[], &[8, 9]]),
        [vec![0x40, 0, 1, 7, 0, 0, 0, 2, 8, 9]]
    );
    let long = write(&mut delimiter, &[&[5; 30]]);
    assert_eq!(long[0][..3], [0xa0, 0, 5]);
    assert_eq!(long[1][..3], [0x80, 1, 5]);
    assert_eq!(long[2][..], [0x90, 2, 5, 5]);

    let (mut delimiter, _) = pair(16, false, true, true);
    let long = write(&mut delimiter, &[&[5; 16]]);
    assert_eq!(long[0][..10], [0xe0, 0, 0, 0, 1, 0, 0, 0, 0, 5]);
    assert_eq!(long[2][..], [0xd0, 0, 0, 0, 1, 0, 0, 0, 14, 5, 5]);
}

#[test]
fn reliable_flows_hand_pieces_on_as_they_come() {
    let (mut delimiter, mut assembler) = pair(100, true, true, true);
    let piece = Bytes::from(vec![1; 250]);
    delimiter.write(piece, true).expect("it is taken");
    for udf in udfs(&mut delimiter) {
        deliver(&mut assembler, udf, 0, false);
    }
    let pieces: Vec<_> = std::iter::from_fn(|| assembler.poll()).collect();
    assert_eq!(pieces.len(), 3);
    assert!(pieces.iter().all(|piece| piece.more));
    delimiter.write(Bytes::default(), false).expect("the end");
    for udf in udfs(&mut delimiter) {
        deliver(&mut assembler, udf, 0, false);
    }
    let last = assembler.poll().expect("the end of the SDU");
    assert!(last.sdu.is_empty() && !last.more);
}

#[test]
fn partial_delivery_ends_what_it_began() {
    let (mut delimiter, _) = pair(100, true, false, true);
    let mut assembler: Assembler<Bytes> = Assembler::new(AssemblerConfig {
        policy: Delimiting::Standard,
        in_order: true,
        is_reliable: false,
        partial_delivery: true,
        bytes_max: 1000,
    });
    write_all(&mut delimiter, &[vec![1; 300], vec![2; 300]], 0);
    let mut udfs = udfs(&mut delimiter);
    assert_eq!(udfs.len(), 8);
    udfs.drain(2..4);
    for (seq, udf) in udfs.into_iter().enumerate() {
        deliver(&mut assembler, udf, seq as u64, seq == 2);
    }
    let got = sdus(&mut assembler);
    assert_eq!(got, [vec![1; 196], vec![2; 300]]);
    assert_eq!(assembler.counters().partial, 1);
}

#[test]
fn an_sdu_that_is_too_long_is_discarded_and_the_next_is_not() {
    for in_order in [true, false] {
        let (mut delimiter, _) = pair(100, in_order, false, true);
        let mut assembler: Assembler<Bytes> = Assembler::new(AssemblerConfig {
            policy: Delimiting::Standard,
            in_order,
            is_reliable: false,
            partial_delivery: false,
            bytes_max: 1000,
        });
        write_all(&mut delimiter, &[vec![1; 1200], vec![2; 900]], 0);
        for udf in udfs(&mut delimiter) {
            deliver(&mut assembler, udf, 0, false);
        }
        assert_eq!(sdus(&mut assembler), [vec![2; 900]]);
        assert!(assembler.counters().too_long >= 1);
        assert_eq!(assembler.held_bytes(), 0);
    }
}

#[test]
fn without_delimiting_an_sdu_is_a_udf() {
    let mut delimiter: Delimiter<Bytes> = Delimiter::new(DelimiterConfig {
        policy: Delimiting::None,
        udf_max: 10,
        in_order: true,
        msg_boundaries: true,
        concatenation: true,
    });
    let write = |delimiter: &mut Delimiter<Bytes>, len, more| {
        delimiter.write(Bytes::from(vec![3; len]), more)
    };
    assert_eq!(write(&mut delimiter, 10, false), Ok(()));
    assert_eq!(write(&mut delimiter, 11, false), Err(Refusal::TooLong));
    assert_eq!(write(&mut delimiter, 5, true), Ok(()));
    assert_eq!(write(&mut delimiter, 6, true), Err(Refusal::TooLong));
    assert_eq!(
        write(&mut delimiter, 5, false),
        Ok(()),
        "the rest of the refused one"
    );
    assert_eq!(write(&mut delimiter, 0, false), Ok(()));
    let lengths: Vec<usize> = udfs(&mut delimiter).iter().map(Payload::len).collect();
    assert_eq!(lengths, [10, 0]);
}

fn pair_of(
    policy: Delimiting,
    udf_max: usize,
    in_order: bool,
    msg_boundaries: bool,
) -> (Delimiter<Bytes>, Assembler<Bytes>) {
    let delimiter = Delimiter::new(DelimiterConfig {
        policy,
        udf_max,
        in_order,
        msg_boundaries,
        concatenation: false,
    });
    let assembler = Assembler::new(AssemblerConfig {
        policy,
        in_order,
        is_reliable: false,
        partial_delivery: false,
        bytes_max: 1 << 20,
    });
    (delimiter, assembler)
}

fn bytes(udfs: &[Bytes]) -> Vec<Vec<u8>> {
    udfs.iter().map(|udf| udf.as_slice().to_vec()).collect()
}

#[test]
fn a_flag_byte_tells_whole_first_middle_and_last() {
    let (mut delimiter, mut assembler) = pair_of(Delimiting::FlagByte, 20, true, true);
    let (short, long) = (vec![1; 19], vec![2; 50]);
    for sdu in [&short, &long, &short] {
        delimiter
            .write(Bytes::from(sdu.clone()), false)
            .expect("taken");
    }
    let udfs = udfs(&mut delimiter);
    let flags: Vec<u8> = udfs.iter().map(|udf| udf.as_slice()[0]).collect();
    assert_eq!(flags, [0x07, 0x05, 0x04, 0x06, 0x07]);
    assert!(udfs.iter().all(|udf| udf.len() <= 20));
    for udf in &udfs {
        deliver(&mut assembler, udf.clone(), 0, false);
    }
    assert_eq!(sdus(&mut assembler), [short.clone(), long, short.clone()]);
    // An SDU that lacks a fragment is not handed on.
    for (index, udf) in udfs.iter().enumerate().filter(|(index, _)| *index != 2) {
        deliver(&mut assembler, udf.clone(), 0, index == 3);
    }
    assert_eq!(sdus(&mut assembler), [short.clone(), short]);
    assert_eq!(assembler.counters().incomplete, 2);
    for odd in [vec![], vec![0x03, 1], vec![0x0f, 1], vec![0x00]] {
        deliver(&mut assembler, Bytes::from(odd), 0, false);
    }
    assert_eq!(assembler.counters().malformed, 4);
    assert!(sdus(&mut assembler).is_empty());
}

#[test]
fn unordered_or_headerless_flows_refuse_long_sdus_join_pieces() {
    for (policy, sdu_max) in [(Delimiting::None, 20), (Delimiting::FlagByte, 19)] {
        let (mut delimiter, mut assembler) = pair_of(policy, 20, false, true);
        let piece = |count| Bytes::from(vec![7; count]);
        assert_eq!(delimiter.write(piece(sdu_max), false), Ok(()));
        assert_eq!(
            delimiter.write(piece(sdu_max + 1), false),
            Err(Refusal::TooLong)
        );
        assert_eq!(delimiter.write(piece(10), true), Ok(()));
        assert_eq!(delimiter.write(piece(0), true), Ok(()));
        assert_eq!(delimiter.write(piece(sdu_max - 10), false), Ok(()));
        assert_eq!(delimiter.write(piece(10), true), Ok(()));
        assert_eq!(delimiter.write(piece(11), true), Err(Refusal::TooLong));
        // The remaining pieces of a refused SDU are dropped.
        assert_eq!(delimiter.write(piece(10), false), Ok(()));
        assert_eq!(delimiter.write(piece(3), false), Ok(()));
        let udfs = udfs(&mut delimiter);
        assert!(bytes(&udfs).iter().all(|udf| udf.len() <= 20));
        for udf in udfs {
            deliver(&mut assembler, udf, 0, false);
        }
        let expected = [vec![7; sdu_max], vec![7; sdu_max], vec![7; 3]];
        assert_eq!(sdus(&mut assembler), expected);
    }
}

#[test]
fn a_stream_is_cut_where_udfs_are_full() {
    for (policy, payload_max) in [(Delimiting::None, 20), (Delimiting::FlagByte, 19)] {
        let (mut delimiter, mut assembler) = pair_of(policy, 20, true, false);
        let stream: Vec<u8> = (0..55).collect();
        assert_eq!(delimiter.write(Bytes::from(stream.clone()), true), Ok(()));
        let udfs = udfs(&mut delimiter);
        assert_eq!(udfs.len(), 3);
        assert_eq!(udfs[0].len(), 20);
        for udf in udfs {
            deliver(&mut assembler, udf, 0, false);
        }
        let pieces = sdus(&mut assembler);
        assert_eq!(pieces[0].len(), payload_max);
        assert_eq!(pieces.concat(), stream);
    }
}
