//! Messages of files that are sent, and SDUs that files receive, without a copy.

use std::os::unix::net::UnixDatagram;

use super::*;
use crate::recv::{Passing, ToFile};
use crate::send::FromFile;

/// Two ends of messages; reads of the second do not wait.
fn messages() -> (UnixDatagram, UnixDatagram) {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs)
}

#[test]
fn message_of_a_file_is_sent_or_kept_as_the_caller_decides() {
    let Pair {
        a,
        mut b,
        node: _node,
    } = pair(CAPACITY, u64::MAX);
    let (mut sender, _a) = a.split();
    let (ours, theirs) = messages();
    let mut buffer = vec![0; 4000];
    let mut next = |sends: bool, seen: &mut Vec<u8>| {
        sender.try_send_from(theirs.as_fd(), &mut buffer, |head, length| {
            *seen = head.to_vec();
            assert!(length >= head.len());
            sends
        })
    };
    let mut seen = Vec::new();
    assert!(matches!(next(true, &mut seen), Ok(FromFile::Empty)));
    let long: Vec<u8> = (0..3000).map(|at| at as u8).collect();
    for message in [&long[..], b"kept", b"short"] {
        ours.send(message).unwrap();
    }
    assert!(matches!(next(true, &mut seen), Ok(FromFile::Sent(3000))));
    assert_eq!(seen, long[..crate::HEAD_BYTES]);
    assert!(matches!(next(false, &mut seen), Ok(FromFile::Kept(4))));
    assert!(matches!(next(true, &mut seen), Ok(FromFile::Sent(5))));
    assert_eq!(seen, b"short");
    assert_eq!(buffer[..4], *b"kept");
    let mut got = vec![0; 4000];
    assert_eq!(b.try_recv(&mut got).unwrap(), Some(3000));
    assert_eq!(got[..3000], long);
    assert_eq!(b.try_recv(&mut got).unwrap(), Some(5));
    assert_eq!(sender.stats().sdus_sent, 2);
}

#[test]
fn full_ring_leaves_the_message_with_the_file() {
    let Pair { a, b: _b, node } = pair(CAPACITY, u64::MAX);
    let (mut sender, _a) = a.split();
    let (ours, theirs) = messages();
    let mut buffer = vec![0; 4000];
    let mut sent = 0;
    let full = loop {
        ours.send(&[7; 4000]).unwrap();
        match sender.try_send_from(theirs.as_fd(), &mut buffer, |_, _| true) {
            Ok(FromFile::Sent(4000)) => sent += 1,
            other => break other,
        }
    };
    assert!(matches!(full, Ok(FromFile::Full)), "{full:?}");
    assert!((1..=CAPACITY / 4000).contains(&sent));
    assert_eq!(theirs.recv(&mut buffer).unwrap(), 4000);
    // The end of the flow is an error also then.
    node.bury(Side::B);
    let ended = sender.try_send_from(theirs.as_fd(), &mut buffer, |_, _| true);
    assert!(ended.is_err(), "{ended:?}");
}

#[test]
fn sdu_goes_to_a_file_with_the_bytes_that_were_judged() {
    let Pair {
        mut a,
        b,
        node: _node,
    } = pair(CAPACITY, u64::MAX);
    let (_sender, mut receiver) = b.split();
    let (ours, theirs) = messages();
    let long: Vec<u8> = (0..3000).map(|at| at as u8).collect();
    for sdu in [&long[..], b"dropped", b"kept"] {
        a.send(sdu).unwrap();
    }
    let mut next = |passing: Passing| {
        let mut room = *b"--0123456789";
        receiver.try_recv_to(ours.as_fd(), &mut room, 2, |room, length| {
            assert_eq!(&room[..2], b"--");
            assert!(length == 3000 || room[2..].starts_with(b"dropped") || length == 4);
            room[1] = b'!';
            passing
        })
    };
    let written = next(Passing::From(1));
    assert!(
        matches!(written, Ok(ToFile::Written(Ok(3001)))),
        "{written:?}"
    );
    let mut got = vec![0; 4000];
    assert_eq!(theirs.recv(&mut got).unwrap(), 3001);
    assert_eq!((got[0], &got[1..3001]), (b'!', &long[..]));
    assert!(matches!(next(Passing::Drop), Ok(ToFile::Dropped)));
    assert!(matches!(next(Passing::Stay), Ok(ToFile::Stayed)));
    assert!(matches!(next(Passing::From(2)), Ok(ToFile::Written(Ok(4)))));
    assert_eq!(theirs.recv(&mut got).unwrap(), 4);
    assert_eq!(got[..4], *b"kept");
    assert!(matches!(next(Passing::Stay), Ok(ToFile::Empty)));
    // A refusal of the file is reported, and the SDU has left the ring.
    drop(theirs);
    a.send(b"lost").unwrap();
    let mut next =
        |room: &mut [u8]| receiver.try_recv_to(ours.as_fd(), room, 0, |_, _| Passing::From(0));
    assert!(matches!(next(&mut [0; 8]), Ok(ToFile::Written(Err(_)))));
    assert!(matches!(next(&mut [0; 8]), Ok(ToFile::Empty)));
}
