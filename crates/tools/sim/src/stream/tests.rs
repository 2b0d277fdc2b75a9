//! Tests of the comparison of what a flow delivers with what was sent.

use super::*;

const RELIABLE: Promise = Promise {
    loses_nothing: true,
    in_order: true,
    has_boundaries: true,
};
const ANY: Promise = Promise {
    loses_nothing: false,
    in_order: false,
    has_boundaries: true,
};

fn pieces(promise: Promise, room: usize) -> (Stream, Vec<(Bytes, bool)>) {
    let mut stream = Stream::new(77, 40, Lengths::Mixed(100_000), promise);
    let mut pieces = Vec::new();
    while let Some(piece) = stream.write(room) {
        pieces.push(piece);
    }
    assert!(stream.is_written());
    (stream, pieces)
}

#[test]
fn what_is_written_is_what_is_expected_in_any_pieces() {
    for room in [1_400, 4_096, 100_000] {
        let (mut stream, pieces) = pieces(RELIABLE, room);
        for (piece, more) in &pieces {
            stream.read(piece, *more).unwrap();
        }
        assert!(stream.is_complete());
    }
}

#[test]
fn stream_without_boundaries_is_one_run_of_bytes() {
    let promise = Promise {
        has_boundaries: false,
        ..RELIABLE
    };
    let (mut stream, pieces) = pieces(promise, 100_000);
    let mut run = Vec::new();
    for (piece, _) in &pieces {
        piece.append_to(&mut run);
    }
    for chunk in run.chunks(777) {
        stream.read(&Bytes::from(chunk.to_vec()), false).unwrap();
    }
    assert!(stream.is_complete());
}

#[test]
fn loss_doubles_order_and_damage_on_a_reliable_flow_are_seen() {
    let spoil = |change: fn(&mut Vec<(Bytes, bool)>)| {
        let (mut stream, mut pieces) = pieces(RELIABLE, 100_000);
        change(&mut pieces);
        let read = pieces
            .iter()
            .try_for_each(|(piece, more)| stream.read(piece, *more));
        read.is_err() || !stream.is_complete()
    };
    assert!(!spoil(|_| ()));
    assert!(spoil(|pieces| drop(pieces.remove(20))));
    assert!(spoil(|pieces| drop(pieces.pop())));
    assert!(spoil(|pieces| pieces.insert(20, pieces[20].clone())));
    assert!(spoil(|pieces| pieces.swap(20, 30)));
    assert!(spoil(|pieces| {
        let (piece, more) = pieces.remove(20);
        let mut bytes = piece.as_slice().to_vec();
        bytes.push(0);
        pieces.insert(20, (Bytes::from(bytes), more));
    }));
}

#[test]
fn unreliable_flow_may_lose_but_not_invent() {
    let (mut stream, pieces) = pieces(ANY, 100_000);
    for (piece, more) in pieces.iter().rev().step_by(2) {
        stream.read(piece, *more).unwrap();
    }
    assert_eq!(stream.progress()[2], 20);
    let foreign = Bytes::from(vec![9; 100]);
    assert!(stream.read(&foreign, false).is_err());
}

#[test]
fn order_counts_where_it_is_promised() {
    let promise = Promise {
        in_order: true,
        ..ANY
    };
    let (mut stream, pieces) = pieces(promise, 100_000);
    stream.read(&pieces[3].0, false).unwrap();
    assert!(stream.read(&pieces[3].0, false).is_err());
    assert!(stream.read(&pieces[2].0, false).is_err());
    assert!(stream.read(&pieces[9].0, false).is_ok());
}
