//! Cases of a hostile peer: records that lie, and memory that the peer overwrites.

use carina_wire::FlowSpec;
use carina_wire::vmpi::{Channel, Control, DataHeader, HEADER_BYTES, Hello, Outcome};

use super::node::Node;
use super::{Deadline, Fixture, Random, Sides, put, receive};
use crate::hl::Side;
use crate::ll::{DownReason, LinkState};

/// A peer that lies in its records, in lengths, channel numbers, credit or control messages, loses
/// its link. A correct node that follows it is served.
pub fn lies_in_records_end_the_link<F: Fixture>(make: impl Fn() -> F) {
    for (what, lies) in lies() {
        let mut sides = Sides::new(make());
        let mut host = Node::new(Side::Host, sides.device(Side::Host));
        let deadline = Deadline::new();
        let mut lies = lies.into_iter().peekable();
        while host.violations == 0 {
            sides.fixture.serve();
            sides.ahead_ns += 100_000;
            let now_ns = sides.now_ns();
            host.turn(sides.device(Side::Host), now_ns);
            let guest = sides.device(Side::Guest);
            if guest.link(now_ns) == LinkState::Up {
                let _ = receive(guest);
                while lies.next_if(|lie| put(guest, lie)).is_some() {}
                guest.publish();
            }
            std::thread::yield_now();
            deadline.check(what);
        }
        assert_eq!(sides.device(Side::Host).stats().violations, 1, "{what}");
        sides.end(Side::Guest, false);
        sides.reopen(Side::Guest);
        let mut guest = Node::new(Side::Guest, sides.device(Side::Guest));
        while !(host.endpoint.is_up() && guest.endpoint.is_up()) {
            sides.fixture.serve();
            sides.ahead_ns += 1_000_000;
            let now_ns = sides.now_ns();
            host.turn(sides.device(Side::Host), now_ns);
            guest.turn(sides.device(Side::Guest), now_ns);
            std::thread::yield_now();
            deadline.check("a correct node is not served afterwards");
        }
        assert_eq!(host.violations, 1, "{what}");
    }
}

/// What a hostile guest sends, and the name of the lie.
fn lies() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let hello = control(Control::Hello(Hello {
        sdu_bytes_max: 1 << 30,
        piece_bytes_max: 1000,
        channels_max: 16,
        bundle_bytes_max: 0,
        name: "hostile",
    }));
    let overrun = (0..40).map(|_| data(1, 900));
    let opened = [hello.clone(), allocate(1)];
    let after_open = |more: Vec<Vec<u8>>| opened.iter().cloned().chain(more).collect();
    vec![
        (
            "a record shorter than a header",
            vec![hello.clone(), vec![0; 3]],
        ),
        (
            "reserved bits of a header",
            vec![hello.clone(), vec![0xff; 12]],
        ),
        ("no HELLO", vec![allocate(1)]),
        ("two HELLOs", vec![hello.clone(), hello.clone()]),
        (
            "a control message of noise",
            vec![hello.clone(), [vec![0; 4], vec![0xa5; 40]].concat()],
        ),
        (
            "an empty control message",
            vec![hello.clone(), vec![0; HEADER_BYTES]],
        ),
        (
            "a channel of the other side",
            vec![hello.clone(), allocate(2)],
        ),
        (
            "an answer without a question",
            vec![hello.clone(), response()],
        ),
        ("a channel opened twice", after_open(vec![allocate(1)])),
        (
            "a piece longer than allowed",
            after_open(vec![data(1, 1200)]),
        ),
        // The application of the suite reads at once, so the overrun comes in one burst.
        ("more data than credit", after_open(overrun.collect())),
        ("credit that decreases", after_open(vec![credit(1)])),
        (
            "credit beyond what was sent",
            after_open(vec![credit(u64::MAX)]),
        ),
    ]
}

/// A request to open a channel.
fn allocate(number: u16) -> Vec<u8> {
    control(Control::Allocate {
        channel: Channel::new(number),
        window_bytes: 8192,
        spec: FlowSpec::reliable(),
        source: "hostile",
        destination: "server",
    })
}

/// The answer to a request for channel 2.
fn response() -> Vec<u8> {
    control(Control::AllocateResponse {
        channel: Channel::new(2),
        window_bytes: 8192,
        outcome: Outcome::Accepted,
        reason: "",
    })
}

/// An SDU of one piece.
fn data(number: u16, bytes: usize) -> Vec<u8> {
    let channel = Channel::new(number);
    let header = DataHeader {
        channel,
        more: false,
    };
    [&header.encode()[..], &vec![9; bytes]].concat()
}

/// Credit for channel 1.
fn credit(limit_bytes: u64) -> Vec<u8> {
    control(Control::Credit {
        channel: Channel::new(1),
        limit_bytes,
    })
}

/// A record with a control message.
fn control(message: Control<'_>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    let mut body = Vec::new();
    message.encode(&mut body);
    bytes.extend(body);
    bytes
}

/// Memory that a hostile peer overwrites at any time costs at most the link. The node does not
/// panic, and serves the correct peer that follows.
pub fn damaged_memory_ends_the_link_and_not_the_node<F: Fixture>(make: impl Fn() -> F) {
    for side in [Side::Host, Side::Guest] {
        for seed in 1..=20 {
            let mut random = Random::new(seed);
            let mut sides = Sides::up(make());
            let peer = side.peer();
            for _ in 0..20 {
                let _ = put(sides.device(side), &[3; 40]);
            }
            sides.device(side).publish();
            if !sides.fixture.damage(side, &mut random) {
                return;
            }
            for look in 0..200 {
                if look % 50 == 25 {
                    let _ = sides.fixture.damage(side, &mut random);
                }
                use_all(&mut sides, peer, &mut random);
            }
            sides.end(side, true);
            sides.reopen(side);
            let _ = sides.wait_down_or_up(peer);
            sides.wait_up();
            sides.exchange(b"well");
        }
    }
}

/// Makes every call of a device once, as an owner does.
fn use_all<F: Fixture>(sides: &mut Sides<F>, side: Side, random: &mut Random) {
    sides.fixture.serve();
    sides.ahead_ns += 1_000_000;
    let now_ns = sides.now_ns();
    let device = sides.device(side);
    let _ = device.link(now_ns);
    if let Ok(slot) = device.reserve(random.below(4000)) {
        slot.commit(false);
    }
    device.publish();
    match device.next() {
        Ok(_) => device.release(),
        Err(corrupt) => {
            let _ = device.fail(now_ns, DownReason::Corrupt(corrupt));
        }
    }
    if let Err(corrupt) = device.free_bytes() {
        let _ = device.fail(now_ns, DownReason::Corrupt(corrupt));
    }
    let _ = (device.arm(now_ns), device.arm_space(4000));
    device.disarm();
}
