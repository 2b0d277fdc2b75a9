//! Cases of fragmentation and reassembly.

use super::*;
use crate::fragments::{cut4, cut6};

/// A case whose configuration has other MTUs.
fn with_mtus(case: Case, external: u16, internal: u16) -> Case {
    let configuration = case
        .configuration
        .replace(
            "external-interface { mtu 1500;",
            &format!("external-interface {{ mtu {external};"),
        )
        .replace(
            "internal-interface { mtu 1500;",
            &format!("internal-interface {{ mtu {internal};"),
        );
    Case {
        configuration,
        ..case
    }
}

/// Lengths of the packets in frames, in bytes.
fn lengths(frames: &[Vec<u8>]) -> Vec<usize> {
    frames.iter().map(|frame| frame.len() - 14).collect()
}

#[test]
fn fragments_of_ipv4_become_a_packet_with_identification_0() {
    let mut packet = udp((HOST, 53), (WHOLE, 5), &[9; 600]);
    edit4(&mut packet, |header| header.identification = 0x1234);
    let parts = cut4(&packet, &[200, 400]);
    for order in [[0, 1, 2], [2, 1, 0]] {
        let case = order
            .iter()
            .fold(usual(), |case, at| case.with_external(frame4(&parts[*at])));
        let ran = case.run();
        let (_, inner) = tunnelled(&ran.internal[0], BR_WHOLE, B4_WHOLE);
        edit4(&mut packet, |header| header.identification = 0);
        assert_eq!(inner, after_hop(&packet));
        let bytes = 14 + packet.len();
        assert_all(
            &ran,
            &format!(
                "in-ipv4=1/{bytes} in-ipv4-frag-needs-reassembly=3 in-ipv4-frag-reassembled=1 \
                 out-ipv6=1/{} out-ipv6-frag-not=1",
                bytes + 40
            ),
        );
    }
}

#[test]
fn packets_that_are_cut_get_identifications_in_a_row() {
    let inner = |bytes: usize, id: u16| {
        let mut packet = udp((SHARED, 40000), (HOST, 80), &vec![7; bytes - 28]);
        edit4(&mut packet, |header| header.identification = id);
        packet
    };
    // The first packet becomes two fragments, the second three.
    let ran = with_mtus(usual(), 576, 1500)
        .with_internal(frame6(&tunnel(B4_HIGH, BR, &inner(992, 7))))
        .with_internal(frame6(&tunnel(B4_HIGH, BR, &inner(1446, 7))))
        .run();
    assert_eq!(lengths(&ran.external), [572, 440, 572, 572, 342]);
    let ids = ran
        .external
        .iter()
        .map(|frame| Head::of(&frame[14..]).id)
        .collect::<Vec<_>>();
    // Snabb's check numbers packets from 0x4243 on.
    assert_eq!(ids, [0x4243, 0x4243, 0x4244, 0x4244, 0x4244]);
    for frame in &ran.external {
        assert_eq!(ones_sum(&frame[14..34]), 0xffff);
    }
    assert_all(
        &ran,
        "in-ipv6=2/2546 in-ipv6-frag-reassembly-unneeded=2 out-ipv4=2/2466 out-ipv4-frag=5",
    );
    let kept = with_mtus(Case::plain(), 576, 1500)
        .with_internal(frame6(&tunnel(B4_HIGH, BR, &inner(992, 7))))
        .run();
    assert!(kept.external.iter().all(|frame| frame[18..20] == [0, 7]));
}

#[test]
fn packets_too_long_for_a_tunnel_are_cut_outside() {
    for (bytes, parts) in [(1480, vec![1280, 296]), (2720, vec![1280, 1280, 304])] {
        let packet = udp((HOST, 53), (WHOLE, 5), &vec![7; bytes - 28]);
        let ran = with_mtus(quiet(), 1500, 1280)
            .with_external(frame4(&packet))
            .run();
        assert_eq!(lengths(&ran.internal), parts);
        assert!(
            ran.internal
                .iter()
                .all(|frame| out6(frame).0.hop_limit == 255)
        );
        assert_all(
            &ran,
            &format!(
                "in-ipv4=1/{} in-ipv4-frag-reassembly-unneeded=1 out-ipv6=1/{} out-ipv6-frag={}",
                14 + bytes,
                54 + bytes,
                parts.len()
            ),
        );
    }
}

#[test]
fn long_packets_with_df_are_answered_or_counted() {
    let mut packet = udp((HOST, 53), (WHOLE, 5), &[7; 1452]);
    edit4(&mut packet, |header| header.dont_fragment = true);
    let dropped = "in-ipv4=1/1494 in-ipv4-frag-reassembly-unneeded=1 drop-all-ipv4-iface=1/1494 \
        drop-over-mtu-but-dont-fragment-ipv4=1/1494";
    let ran = with_mtus(quiet(), 1500, 1280)
        .with_external(frame4(&packet))
        .run();
    assert_silent(&ran);
    assert_all(
        &ran,
        &format!("{dropped} drop-out-by-policy-icmpv4-packets=1"),
    );
    let ran = with_mtus(usual(), 1500, 1280)
        .with_external(frame4(&packet))
        .run();
    assert_eq!(Head::of(&ran.external[0][14..]), of_error(255));
    let quoted = after_hop(&packet)[..548].to_vec();
    assert_eq!(out4(&ran.external[0]).icmp, Some((3, 4, 1240, quoted)));
    assert_all(
        &ran,
        &format!("{dropped} out-icmpv4-error=1/590 out-ipv4=1/590 out-ipv4-frag-not=1"),
    );
    // An error may be fragmented as well.
    let ran = with_mtus(usual(), 300, 1280)
        .with_external(frame4(&packet))
        .run();
    assert_eq!(lengths(&ran.external), [300, 296]);
    assert!(
        ran.external
            .iter()
            .all(|frame| frame[14 + 4..14 + 6] == [0x42, 0x43])
    );
}

#[test]
fn fragments_of_tunnels_are_put_together() {
    let inner = udp((SHARED, 40000), (HOST, 80), &[1; 1400]);
    let parts = cut6(&tunnel(B4_HIGH, BR, &inner), 77, &[800]);
    let bytes = 14 + inner.len();
    let came = format!(
        "in-ipv6=1/{} in-ipv6-frag-needs-reassembly=2 in-ipv6-frag-reassembled=1 \
         out-ipv4=1/{bytes}",
        bytes + 40
    );
    for order in [[0, 1], [1, 0]] {
        let case = |case: Case| {
            let first = case.with_internal(frame6(&parts[order[0]]));
            first.with_internal(frame6(&parts[order[1]]))
        };
        let ran = case(quiet()).run();
        assert_eq!(ran.external[0][14..], inner);
        assert_all(&ran, &format!("{came} out-ipv4-frag-not=1"));
        let ran = case(with_mtus(usual(), 576, 1280)).run();
        assert_eq!(lengths(&ran.external), [572, 572, 324]);
        assert_all(&ran, &format!("{came} out-ipv4-frag=3"));
    }
    let one = "reassembly { max-fragments-per-packet 1; }";
    let ran = Case::with(one, one)
        .like_snabb()
        .with_internal(frame6(&parts[0]))
        .with_internal(frame6(&parts[1]))
        .run();
    assert_silent(&ran);
    assert_all(
        &ran,
        "in-ipv6-frag-needs-reassembly=2 drop-ipv6-frag-invalid-reassembly=1",
    );
}

#[test]
fn fragments_from_the_internet_are_cut_again_for_tunnels() {
    let packet = udp((HOST, 53), (WHOLE, 5), &[1; 1432]);
    let parts = cut4(&packet, &[800, 1200]);
    let case = parts
        .iter()
        .fold(quiet(), |case, part| case.with_external(frame4(part)));
    let ran = with_mtus(case, 1500, 1280).run();
    assert_eq!(lengths(&ran.internal), [1280, 276]);
    assert_all(
        &ran,
        "in-ipv4=1/1474 in-ipv4-frag-needs-reassembly=3 in-ipv4-frag-reassembled=1 \
         out-ipv6=1/1514 out-ipv6-frag=2",
    );
}
