//! A peer that violates the protocol loses its link; other flows are not affected.

use carina_wire::FlowSpec;
use carina_wire::vmpi::{BundleHeader, Channel, Control, DataHeader, Outcome};

use super::*;

/// Gives the host control messages that a correct guest never sends, after correct ones.
fn misbehave(messages: &[Control<'_>]) -> Result<(), Violation> {
    let mut pair = Pair::up(7);
    messages.iter().try_for_each(|message| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        pair.host.endpoint.handle_control(&bytes)
    })
}

fn request(channel: u16) -> Control<'static> {
    Control::Allocate {
        channel: Channel::new(channel),
        window_bytes: WINDOW,
        spec: FlowSpec::reliable(),
        source: "a",
        destination: "server",
    }
}

#[test]
fn wrong_version_is_named_and_costs_the_link() {
    let mut pair = Pair::new(8);
    pair.host.endpoint.link_up(Instant::from_nanos(1));
    let violation = pair
        .host
        .endpoint
        .handle_control(&[1, 9, 0, 1, 2, 3])
        .unwrap_err();
    assert_eq!(violation, Violation::WrongVersion { peer: 9 });
    assert_eq!(
        violation.to_string(),
        "peer speaks VMPI version 9, this system 2"
    );
    let event = pair.host.endpoint.poll_event();
    assert!(
        matches!(
            event,
            Some(Event::Down {
                code: "wrong-version",
                ..
            })
        ),
        "{event:?}"
    );
    assert_eq!(pair.host.endpoint.counters().violations, 1);
}

#[test]
fn requests_before_a_hello_and_second_hellos_are_violations() {
    let mut pair = Pair::new(9);
    pair.host.endpoint.link_up(Instant::from_nanos(1));
    let mut bytes = Vec::new();
    Control::Register { name: "x" }.encode(&mut bytes);
    assert_eq!(
        pair.host.endpoint.handle_control(&bytes),
        Err(Violation::NoHello)
    );
    let hello = Hello {
        sdu_bytes_max: 1,
        piece_bytes_max: 1,
        channels_max: 1,
        bundle_bytes_max: 0,
        name: "guest",
    };
    assert_eq!(
        misbehave(&[Control::Hello(hello)]),
        Err(Violation::SecondHello)
    );
}

#[test]
fn channels_of_the_wrong_half_or_in_use_are_violations() {
    let channel = Channel::new(2);
    assert_eq!(
        misbehave(&[request(2)]),
        Err(Violation::BadChannel { channel })
    );
    let channel = Channel::new(5);
    assert_eq!(
        misbehave(&[request(5), request(5)]),
        Err(Violation::BadChannel { channel })
    );
}

#[test]
fn unsolicited_answer_is_a_violation_and_a_credit_is_not() {
    let channel = Channel::new(3);
    let answer = Control::AllocateResponse {
        channel,
        window_bytes: WINDOW,
        outcome: Outcome::Accepted,
        reason: "",
    };
    assert_eq!(
        misbehave(&[answer]),
        Err(Violation::UnexpectedResponse { channel })
    );
    // Credit for an unknown channel is no violation: the credit and the channel's end may have
    // crossed.
    assert_eq!(
        misbehave(&[Control::Credit {
            channel,
            limit_bytes: 9
        }]),
        Ok(())
    );
}

#[test]
fn credit_beyond_what_was_sent_is_a_violation() {
    let mut pair = Pair::up(10);
    let channel = pair.host.allocate("server");
    pair.drive(200);
    let mut bytes = Vec::new();
    Control::Credit {
        channel,
        limit_bytes: u64::from(WINDOW) + 8,
    }
    .encode(&mut bytes);
    let result = pair.host.endpoint.handle_control(&bytes);
    assert_eq!(result, Err(Violation::BadCredit { channel }));
}

#[test]
fn data_beyond_the_credit_costs_the_link() {
    let mut pair = Pair::up(11);
    let channel = pair.host.allocate("server");
    pair.drive(200);
    let header = DataHeader {
        channel,
        more: false,
    }
    .encode();
    for _ in 0..8 {
        let rx = pair.host.endpoint.on_rx(header, 504 + 4).unwrap();
        assert_eq!(
            rx,
            Rx::Deliver {
                channel,
                more: false
            }
        );
    }
    let overrun = Violation::CreditOverrun {
        channel,
        beyond_bytes: 8,
    };
    assert_eq!(pair.host.endpoint.on_rx(header, 4), Err(overrun));
    assert!(!pair.host.endpoint.is_up());
}

#[test]
fn bundles_that_no_node_sends_cost_the_link() {
    let open = || {
        let mut pair = Pair::up(11);
        let channel = pair.host.allocate("server");
        pair.drive(200);
        (pair.host.endpoint, channel)
    };
    let (mut host, channel) = open();
    let bundle = Some(BundleHeader { channel }.encode());
    assert_eq!(
        host.on_bundle(bundle, 600, Some(592)),
        Ok(RxBundle::Deliver(channel))
    );
    // The application, not the peer's node, is responsible for the contents of a bundle.
    assert_eq!(
        host.on_bundle(bundle, 16, None),
        Ok(RxBundle::Broken(channel))
    );
    assert_eq!(
        host.on_bundle(bundle, 600, Some(601)),
        Ok(RxBundle::Broken(channel))
    );
    let other = Channel::new(999);
    let of_other = Some(BundleHeader { channel: other }.encode());
    assert_eq!(host.on_bundle(of_other, 16, Some(8)), Ok(RxBundle::Discard));
    assert_eq!(host.counters().unknown_channel, 1);
    let limit = Config::new(Side::Host, "host", 1 << 16).bundle_bytes_max as usize;
    let bad = Err(Violation::BadBundle { channel });
    for (bytes, wanted) in [(limit + 8, bad), (12, bad)] {
        let (mut host, _) = open();
        assert_eq!(host.on_bundle(bundle, bytes, Some(1)), wanted);
        assert!(!host.is_up());
    }
    let (mut host, _) = open();
    let more = true;
    let header = DataHeader { channel, more }.encode();
    host.on_rx(header, 4 + 5).unwrap();
    assert_eq!(host.on_bundle(bundle, 16, Some(8)), bad);
    let (mut host, _) = open();
    let beyond_bytes = 8;
    let overrun = Violation::CreditOverrun {
        channel,
        beyond_bytes,
    };
    for _ in 0..WINDOW / 1024 {
        assert!(host.on_bundle(bundle, 1024, Some(8)).is_ok());
    }
    assert_eq!(host.on_bundle(bundle, 8, Some(0)), Err(overrun));
    let (mut host, _) = open();
    let bytes = 5;
    let short = Violation::ShortRecord { bytes };
    assert_eq!(host.on_bundle(None, bytes, None), Err(short));
}

#[test]
fn a_peer_that_takes_no_runs_is_sent_none() {
    let mut pair = Pair::up(11);
    let channel = pair.host.allocate("server");
    pair.drive(200);
    let limit = Config::new(Side::Host, "host", 1 << 16).bundle_bytes_max as usize;
    let host = &mut pair.host.endpoint;
    assert_eq!(host.bundle_bytes_max(channel), Some((limit, 600)));
    assert_eq!(host.bundle_bytes_max(Channel::new(999)), None);
    host.limits.bundle_bytes_max = 0;
    assert_eq!(host.bundle_bytes_max(channel), None);
    let before = host.tx_credit(channel);
    host.on_tx_bundle(channel, 64);
    assert_eq!(host.tx_credit(channel), before - 64);
}

#[test]
fn data_on_unknown_channels_is_discarded_and_counted() {
    let mut pair = Pair::up(12);
    let header = DataHeader {
        channel: Channel::new(999),
        more: false,
    }
    .encode();
    assert_eq!(pair.host.endpoint.on_rx(header, 104), Ok(Rx::Discard));
    assert_eq!(pair.host.endpoint.counters().unknown_channel, 1);
    assert!(pair.host.endpoint.is_up());
}

#[test]
fn long_pieces_and_bad_headers_cost_the_link() {
    let mut pair = Pair::up(13);
    let channel = pair.host.allocate("server");
    pair.drive(200);
    let header = DataHeader {
        channel,
        more: true,
    }
    .encode();
    let too_long = Violation::PieceTooLong {
        channel,
        bytes: 601,
    };
    assert_eq!(pair.host.endpoint.on_rx(header, 605), Err(too_long));
    let mut pair = Pair::up(14);
    let result = pair.host.endpoint.on_rx([0, 0, 1, 0], 4);
    assert!(matches!(result, Err(Violation::Header(_))));
    let mut pair = Pair::up(15);
    let result = pair.host.endpoint.on_rx([0; 4], 3);
    assert_eq!(result, Err(Violation::ShortRecord { bytes: 3 }));
}

#[test]
fn endless_requests_are_bounded_by_channels_and_backlog() {
    let mut pair = Pair::up(16);
    let max = usize::from(Config::CHANNELS_MAX);
    let mut channel = 1u16;
    let violation = loop {
        let mut bytes = Vec::new();
        request(channel).encode(&mut bytes);
        if let Err(violation) = pair.host.endpoint.handle_control(&bytes) {
            break violation;
        }
        // Each request beyond the limit is refused, and its channel becomes free again.
        channel = (channel + 2).min(2 * max as u16 + 3);
        assert!(pair.host.endpoint.table.in_use().1 <= max);
    };
    assert_eq!(violation, Violation::Backlog);
}

#[test]
fn random_bytes_on_any_channel_never_panic() {
    for seed in 0..200 {
        let mut pair = Pair::up(seed);
        let channel = pair.host.allocate("server");
        pair.drive(100);
        for _ in 0..200 {
            let mut bytes = Vec::new();
            let n = pair.random.index(40);
            bytes.extend((0..n).map(|_| pair.random.next_u64() as u8));
            if let Some(kind) = bytes.first_mut() {
                *kind %= 9;
            }
            let mut header = DataHeader {
                channel,
                more: false,
            }
            .encode();
            header[pair.random.index(4)] ^= (pair.random.next_u64() & 3) as u8;
            let record = pair.random.index(900);
            let _ = pair.host.endpoint.on_rx(header, record);
            let _ = pair.host.endpoint.handle_control(&bytes);
            let _ = pair.host.endpoint.poll_control(&mut Vec::new());
            while pair.host.endpoint.poll_event().is_some() {}
            if !pair.host.endpoint.is_up() {
                pair.host.endpoint.link_up(Instant::from_nanos(1));
            }
        }
    }
}
