//! Untrusted PDUs, random or mutated.

use carina_ipcp::api::{FlowKey, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Duration;
use carina_wire::Bytes;
use carina_wire::dif::{Address, CepId, PCI_BYTES_MAX, Pci, PduType, QosId, Syntax};
use proptest::prelude::*;

use crate::data_transfer::net::{Net, config, cubes, sdu};

/// A relay, with a flow of each cube and N-1 flows on both sides.
fn victim() -> Net {
    let mut net = Net::new(3, &config());
    net.wire((0, 0), (1, 0));
    net.wire((1, 1), (2, 0));
    net.route(0, &[(3, &[2], &[])]);
    net.route(1, &[(1, &[1], &[]), (3, &[3], &[])]);
    net.route(2, &[(1, &[2], &[])]);
    for (key, cube) in cubes().iter().enumerate() {
        net.flow(0, 1, key as u32, cube);
    }
    net
}

fn pdus() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![
        Just(PduType::Data),
        Just(PduType::Management),
        Just(PduType::Control),
        Just(PduType::Rendezvous),
    ];
    let payload = proptest::collection::vec(any::<u8>(), 0..80);
    let shaped = (
        kinds,
        0..5u64,
        0..5u64,
        0..7u32,
        0..7u32,
        any::<[u8; 4]>(),
        payload,
    )
        .prop_map(|(kind, dst, src, dst_cep, src_cep, more, payload)| {
            let pci = Pci {
                kind: PduType::Data,
                dst: Address(dst),
                src: Address(src),
                qos: QosId(u16::from(more[0] % 7)),
                dst_cep: CepId(dst_cep),
                src_cep: CepId(src_cep),
                drf: more[1] & 1 != 0,
                ecn: more[1] & 2 != 0,
                seq: u64::from(more[2]),
            };
            let mut header = [0; PCI_BYTES_MAX];
            let len = Syntax::default()
                .encode(&pci, None, payload.len(), more[3] % 4, &mut header)
                .expect("small values");
            let mut bytes = [&header[..len], &payload].concat();
            bytes[1] = match kind {
                PduType::Data => bytes[1],
                PduType::Management => 0x40,
                PduType::Control => 0xc0,
                PduType::Rendezvous => 0xcf,
            };
            bytes
        });
    prop_oneof![
        3 => shaped,
        1 => proptest::collection::vec(any::<u8>(), 0..120),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_from_an_n1_flow(list in proptest::collection::vec((pdus(), 0..3u32), 1..60)) {
        let mut net = victim();
        for (bytes, port) in list {
            let now = net.now;
            net.members[1].on_pdu(now, N1Port(port), Bytes::from(bytes));
            net.now += Duration::from_millis(1);
        }
        net.run_until(net.now + Duration::from_secs(1));
        // A new flow works, whatever was received before.
        net.read.clear();
        net.flow(0, 1, 77, &cubes()[2]);
        net.write(0, 77, &sdu(1, 5000));
        net.run_until(net.now + Duration::from_secs(5));
        prop_assert_eq!(net.take_read(1, 77), vec![sdu(1, 5000)]);
    }

    #[test]
    fn reliable_flows_survive_loss_and_repetition(
        seed in any::<u64>(),
        lengths in proptest::collection::vec(0..4000usize, 1..60),
        rounds in 1..4usize,
    ) {
        let mut net = victim();
        // Long enough for a PDU that is lost many times.
        let patient = carina_ipcp::QosCube { retransmit_ms: 600_000, ..cubes()[2].clone() };
        net.flow(0, 1, 9, &patient);
        let mut state = seed | 1;
        net.loses = Some(Box::new(move |_, _, _| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % 10 == 0
        }));
        let mut expected = Vec::new();
        for round in 0..rounds {
            for len in &lengths {
                net.write(0, 9, &sdu(round, *len));
                expected.push(sdu(round, *len));
            }
            net.run_until(net.now + Duration::from_millis(50));
        }
        net.run_until(net.now + Duration::from_secs(300));
        let read = net.take_read(1, 9);
        prop_assert!(
            read == expected,
            "{} of {}: {:?}",
            read.len(),
            expected.len(),
            net.events
        );
    }

    #[test]
    fn orders_in_any_sequence(
        ops in proptest::collection::vec((0..9u8, 0..6u32, any::<u8>()), 1..120)
    ) {
        let mut net = victim();
        for (op, key, arg) in ops {
            let now = net.now;
            let member = &mut net.members[0];
            let flow = FlowKey(key);
            match op {
                0 => {
                    let sdu = Bytes::from(vec![arg; usize::from(arg) * 20]);
                    member.on_sdu(now, flow, sdu, arg & 1 != 0)
                }
                1 => member.finish(now, flow),
                2 => member.close(now, carina_ipcp::data_transfer::api::Owner::Flow(flow)),
                3 => {
                    let room = usize::from(arg) * 30;
                    member.set_delivery_room(now, flow, room);
                }
                4 => member.remove_n1(now, N1Port(key)),
                5 => member.add_n1(N1Port(key), &crate::data_transfer::net::props()),
                6 => member.set_neighbour(now, Address(2), &[N1Port(key)]),
                7 => { net.open(0, key, &cubes()[usize::from(arg) % 5]); }
                _ => net.run_until(now + Duration::from_millis(arg.into())),
            }
        }
        net.run_until(net.now + Duration::from_secs(1));
        let mut objects = Vec::new();
        net.members[0].show(&mut objects);
        prop_assert!(objects.iter().any(|object| object.path == "/counters"));
    }
}
