//! Frames over real interfaces, in network namespaces.
#![allow(missing_docs, clippy::unwrap_used)]

mod room;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_netdev::{
    Bridge, BridgeCounts, Change, FaultPlan, Filter, Interface, InterfaceWatch, Layout,
    PacketSocket, TAP_BURST, Tap, TapLayer, TapOffload, TapResult, VNET_HEADER_BYTES, VlanMatch,
    bring_up, vlan_translate,
};
use carina_sys::monotonic_ns;
use room::Room;

/// The tests judge nothing by this time; it only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn socket(room: &Room, name: &'static str, vlan: VlanMatch) -> PacketSocket {
    room.run(move || {
        let interface = Interface::named(name).unwrap();
        let filter = Filter::ethernet(vlan, &[0xd1f0], &[0x0806], 0xd1f0);
        PacketSocket::open(&interface, Layout::for_mtu(interface.mtu), Some(&filter)).unwrap()
    })
}

/// A broadcast frame with this payload, and a VLAN tag if one is given.
fn frame(tag: Option<(u16, u16)>, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 9]);
    if let Some((ethertype, vlan)) = tag {
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame.extend_from_slice(&vlan.to_be_bytes());
    }
    frame.extend_from_slice(&[0xd1, 0xf0]);
    frame.extend_from_slice(payload);
    frame
}

fn send(socket: &mut PacketSocket, frame: &[u8]) {
    let patience = Instant::now() + PATIENCE;
    loop {
        if let Some(place) = socket.reserve(frame.len()) {
            place.copy_from_slice(frame);
            socket.commit(frame.len());
            break;
        }
        let _ = socket.flush();
        assert!(Instant::now() < patience, "no place for {PATIENCE:?}");
    }
    while !socket.flush().unwrap() {
        assert!(Instant::now() < patience, "not sent for {PATIENCE:?}");
    }
}

fn receive(socket: &mut PacketSocket) -> (Vec<u8>, Option<u16>) {
    let patience = Instant::now() + PATIENCE;
    loop {
        if let Some(received) = socket.receive() {
            let got = (received.frame.to_vec(), received.tag.map(|tag| tag.control));
            assert!(!received.is_cut);
            socket.release();
            return got;
        }
        assert!(Instant::now() < patience, "no frame for {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn wait_until_up(room: &Room, name: &'static str) {
    let patience = Instant::now() + PATIENCE;
    while !room.run(move || Interface::named(name).unwrap().is_up) {
        assert!(
            Instant::now() < patience,
            "{name} is not up after {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn frames_of_every_size_pass_and_those_of_other_vlans_do_not() {
    let (Some(a), Some(b)) = (Room::new(), Room::new()) else {
        return;
    };
    a.join("va", &b, "vb", 9000);
    wait_until_up(&a, "va");
    let mut out = socket(&a, "va", VlanMatch::Untagged);
    let mut plain = socket(&b, "vb", VlanMatch::Untagged);
    let mut tagged = socket(&b, "vb", VlanMatch::Id(10));
    // A kernel drops tagged frames with less than two bytes behind the tag's Ethertype.
    for size in [2, 46, 1500, 9000] {
        let payload: Vec<u8> = (0..size).map(|n| n as u8).collect();
        send(&mut out, &frame(None, &payload));
        send(&mut out, &frame(Some((0x8100, 11)), &payload));
        send(&mut out, &frame(Some((0x8100, 10 | 0x6000)), &payload));
        assert_eq!(receive(&mut plain), (frame(None, &payload), None));
        let (got, tag) = receive(&mut tagged);
        assert_eq!((got, tag), (frame(None, &payload), Some(10 | 0x6000)));
    }
    // This frame is too long for the interface. The kernel skips it, and the ring continues.
    send(&mut out, &frame(None, &[0; 9001]));
    send(&mut out, &frame(None, b"after"));
    assert_eq!(receive(&mut plain).0, frame(None, b"after"));
    assert!(!plain.has_frame() && !tagged.has_frame());
    assert_eq!(plain.take_missed(), 0);
}

#[test]
fn rings_wrap_many_times_and_a_full_one_counts_misses() {
    let (Some(a), Some(b)) = (Room::new(), Room::new()) else {
        return;
    };
    a.join("va", &b, "vb", 1500);
    wait_until_up(&a, "va");
    let mut out = socket(&a, "va", VlanMatch::Untagged);
    let mut into = socket(&b, "vb", VlanMatch::Untagged);
    for n in 0..10_000u32 {
        send(&mut out, &frame(None, &n.to_be_bytes()));
        assert_eq!(receive(&mut into).0, frame(None, &n.to_be_bytes()));
    }
    let slots = out.rx_bytes() / 2048;
    for n in 0..slots as u32 + 100 {
        send(&mut out, &frame(None, &n.to_be_bytes()));
    }
    // Frames that the kernel is still processing are for a moment neither received nor missed.
    let (mut got, mut missed) = (0, 0);
    let patience = Instant::now() + PATIENCE;
    while got + missed < slots + 100 {
        assert!(Instant::now() < patience, "{got} and {missed}");
        while into.receive().is_some() {
            got += 1;
        }
        missed += into.take_missed() as usize;
    }
    into.release();
    assert_eq!((got, missed), (slots, 100));
    send(&mut out, &frame(None, b"on"));
    assert_eq!(receive(&mut into).0, frame(None, b"on"));
}

#[test]
fn an_interface_that_goes_down_is_seen_and_refuses_frames() {
    let (Some(a), Some(b)) = (Room::new(), Room::new()) else {
        return;
    };
    a.join("va", &b, "vb", 1500);
    wait_until_up(&a, "va");
    let watch = a.run(|| InterfaceWatch::new().unwrap());
    let mut out = socket(&a, "va", VlanMatch::Untagged);
    // The kernel reports an interface that has come up a moment after it shows the interface as up.
    let patience = Instant::now() + PATIENCE;
    while watch.has_changed() {
        assert!(Instant::now() < patience, "changes without end");
        std::thread::sleep(Duration::from_millis(2));
    }
    a.ip("link set va down");
    let patience = Instant::now() + PATIENCE;
    while !watch.has_changed() {
        assert!(Instant::now() < patience);
    }
    assert!(!a.run(|| Interface::named("va").unwrap().is_up));
    let place = out.reserve(60).unwrap();
    place.fill(0);
    out.commit(60);
    assert!(out.flush().is_err());
    assert_eq!(out.discard(), 1);
    a.ip("link set va up");
    wait_until_up(&a, "va");
    let mut into = socket(&b, "vb", VlanMatch::Untagged);
    send(&mut out, &frame(None, b"again"));
    assert_eq!(receive(&mut into).0, frame(None, b"again"));
}

/// Runs a bridge between `xa` and `xb` of a room until the returned closure is called.
fn bridge(
    room: &Room,
    plan: FaultPlan,
    changes: [Option<Change>; 2],
) -> impl FnOnce() -> [BridgeCounts; 2] {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let thread = room.run(move || {
        std::thread::spawn(move || {
            let back = FaultPlan {
                seed: plan.seed + 1,
                ..plan
            };
            let mut bridge = Bridge::open(["xa", "xb"], [plan, back], changes).unwrap();
            ready.send(()).unwrap();
            while !over.load(Ordering::Acquire) {
                bridge.step(Some(monotonic_ns() + 5_000_000)).unwrap();
            }
            bridge.counts()
        })
    });
    is_ready.recv().unwrap();
    move || {
        is_over.store(true, Ordering::Release);
        thread.join().unwrap()
    }
}

/// Two rooms, and a third room between them.
fn three_rooms(mtu: usize) -> Option<[Room; 3]> {
    let (a, x, b) = (Room::new()?, Room::new()?, Room::new()?);
    a.join("va", &x, "xa", mtu);
    b.join("vb", &x, "xb", mtu);
    for (room, name) in [(&a, "va"), (&x, "xa"), (&x, "xb"), (&b, "vb")] {
        wait_until_up(room, name);
    }
    Some([a, x, b])
}

#[test]
fn tags_are_translated_on_the_way_and_back() {
    let Some([a, x, b]) = three_rooms(1500) else {
        return;
    };
    let plan = FaultPlan::default();
    let done = bridge(&x, plan, vlan_translate::changes(0x7100, 0x8100));
    let mut inner = a.run(|| {
        let interface = Interface::named("va").unwrap();
        PacketSocket::open(&interface, Layout::for_mtu(1500), None).unwrap()
    });
    let mut outer = socket(&b, "vb", VlanMatch::Id(10));
    send(&mut inner, &frame(Some((0x7100, 10)), b"to the outside"));
    assert_eq!(
        receive(&mut outer),
        (frame(None, b"to the outside"), Some(10))
    );
    send(&mut outer, &frame(Some((0x8100, 10)), b"to the inside"));
    let expected = frame(Some((0x7100, 10)), b"to the inside");
    // The room's kernel looks for neighbours, so its frames may arrive first.
    while receive(&mut inner) != (expected.clone(), None) {}
    let [forward, back] = done();
    assert_eq!(
        (forward.changed, back.changed),
        (1, 1),
        "{forward:?} {back:?}"
    );
}

#[test]
fn loss_and_duplication_of_frames_follow_the_seed() {
    let Some([a, x, b]) = three_rooms(1500) else {
        return;
    };
    let plan = FaultPlan {
        loss: 0.2,
        duplicate: 0.1,
        seed: 7,
        ..FaultPlan::default()
    };
    for room in [&a, &x, &b] {
        // Only the test's frames are to pass.
        for name in ["va", "xa", "xb", "vb"] {
            let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            room.run(move || drop(std::fs::write(path, "1")));
        }
    }
    let done = bridge(&x, plan, [None, None]);
    let mut out = socket(&a, "va", VlanMatch::Untagged);
    let mut into = socket(&b, "vb", VlanMatch::Untagged);
    for n in 0..500u16 {
        send(&mut out, &frame(None, &n.to_be_bytes()));
    }
    send(&mut out, &frame(None, b"last"));
    let mut got = 0u64;
    let patience = Instant::now() + PATIENCE;
    let mut model = carina_netdev::Fault::new(plan);
    for n in 0..501u64 {
        model.offer(n, (), 1);
    }
    let expected = model.counts();
    let expected = expected.offered - expected.lost + expected.duplicated;
    while got < expected {
        if into.receive().is_some() {
            got += 1;
            into.release();
        }
        assert!(Instant::now() < patience, "{got} of {expected}");
    }
    let [forward, _] = done();
    assert_eq!(forward.sent, expected, "{forward:?}");
    assert!(!into.has_frame());
}

#[test]
fn tcp_of_the_kernel_passes_whole_with_any_offload() {
    let Some([a, x, b]) = three_rooms(1500) else {
        return;
    };
    a.ip("addr add 10.77.0.1/24 dev va");
    b.ip("addr add 10.77.0.2/24 dev vb");
    let plan = FaultPlan {
        loss: 0.01,
        delay_ns: 1_000_000,
        ..FaultPlan::default()
    };
    let done = bridge(&x, plan, [None, None]);
    let listener = b.run(|| TcpListener::bind("10.77.0.2:7000").unwrap());
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let sent: Vec<u8> = (0..2_000_000u32).map(|n| (n * 7) as u8).collect();
    let copy = sent.clone();
    a.run(move || {
        let mut stream = TcpStream::connect("10.77.0.2:7000").unwrap();
        stream.write_all(&copy).unwrap();
    });
    assert!(reader.join().unwrap() == sent);
    let [forward, _] = done();
    // Every frame carries at most 1448 bytes of payload, so no frame passed unsegmented.
    assert!(forward.received > 2_000_000 / 1460, "{forward:?}");
    assert_eq!(
        (forward.unsupported, forward.no_room),
        (0, 0),
        "{forward:?}"
    );
    assert!(forward.fault.lost > 0, "{forward:?}");
}

/// Reads the frames of this test that wait at a TAP device, in one burst.
fn read_burst(tap: &mut Tap) -> Vec<Vec<u8>> {
    let mut headers = vec![[0; VNET_HEADER_BYTES]; TAP_BURST];
    let mut frames = vec![vec![0; 2048]; TAP_BURST];
    let buffers = frames.iter_mut().map(Vec::as_mut_slice);
    let results: Vec<TapResult> = tap.read(headers.iter_mut().zip(buffers)).collect();
    let read = frames.into_iter().zip(results);
    read.filter_map(|(mut frame, result)| match result {
        TapResult::Done(bytes) => {
            frame.truncate(bytes);
            // The kernel sends announcements on any interface; these are not counted.
            (frame[12..14] == [0xd1, 0xf0]).then_some(frame)
        }
        TapResult::Later => None,
        other => panic!("{other:?}"),
    })
    .collect()
}

/// Number of calls of read(2), write(2) and similar by this thread so far (proc_pid_io(5)).
fn calls() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let counts = text.lines().filter(|line| line.starts_with("sysc"));
    counts
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

#[test]
fn bursts_of_a_tap_are_few_calls_and_never_wait() {
    let Some(room) = Room::new() else { return };
    let mut tap = room.run(|| {
        let tap = Tap::open("t0", TapLayer::Ethernet, TapOffload::default()).unwrap();
        bring_up("t0", None).unwrap();
        tap
    });
    wait_until_up(&room, "t0");
    let mut socket = socket(&room, "t0", VlanMatch::Untagged);
    let sent: Vec<Vec<u8>> = (0..100).map(|n| frame(None, &[n; 60])).collect();
    for frame in &sent {
        send(&mut socket, frame);
    }
    let before = calls();
    let (mut got, patience) = (Vec::new(), Instant::now() + PATIENCE);
    while got.len() < sent.len() {
        assert!(Instant::now() < patience, "{} frames", got.len());
        got.extend(read_burst(&mut tap));
    }
    assert_eq!(got, sent);
    // No frame waits, and the call does not wait for one.
    assert!(read_burst(&mut tap).is_empty());
    let headers = [[0; VNET_HEADER_BYTES]; 100];
    let frames = sent.iter().map(Vec::as_slice);
    let results: Vec<TapResult> = tap.write(headers.iter().zip(frames)).collect();
    let made = calls() - before;
    assert_eq!(results, vec![TapResult::Done(74); 100]);
    for frame in &sent {
        assert_eq!(receive(&mut socket).0, *frame);
    }
    if tap.takes_bursts() {
        assert!(made < 20, "{made} calls for 200 frames")
    } else {
        println!("SKIP: no io_uring for TAP devices here (Linux 6.4, and allowed)")
    }
}
