//! Tokens of end users, and what their systems send to access points.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use carina_time::Instant;
use carina_vnet::access::Right;
use carina_vnet_access::Refusal;
use carina_vnet_access::access_point::{AccessPoint, PeerConfig, Sink};
use carina_vnet_access::control::{POINT, Reply, Request, USER, message, packet};
use carina_vnet_access::key::{PrivateKey, PublicKey};
use carina_vnet_access::passage::Passage;
use carina_vnet_access::token::Token;

/// Tokens.
pub fn vnet_token(data: &[u8]) {
    reads_vnet_token(data);
}

/// True when the bytes are a token, which is then the same when it is read again. Any other text
/// gets words, and is malformed or was changed.
pub fn reads_vnet_token(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    match Token::read(text) {
        Ok(token) => {
            assert_eq!(Token::read(token.text()).as_ref(), Ok(&token));
            assert!(!token.claims().at.is_empty());
            true
        }
        Err(refused) => {
            assert!(!refused.what.is_empty());
            let reason = refused.reason;
            assert!(matches!(reason, Refusal::Malformed | Refusal::Changed));
            false
        }
    }
}

/// Datagrams from outside, packets from the network, and messages in a tunnel: the first byte says
/// which.
pub fn vnet_access(data: &[u8]) {
    reads_vnet_access(data);
}

/// True when the bytes are a message of a tunnel; what it says is then the same in another packet.
pub fn reads_vnet_access(data: &[u8]) -> bool {
    let Some((kind, bytes)) = data.split_first() else {
        return false;
    };
    let from = SocketAddr::from(([198, 51, 100, 1], 1000));
    let mut point = AccessPoint::new(&PrivateKey::of([1; 32]), OWN, 1420);
    point.set_peers(&[PeerConfig {
        key: PrivateKey::of([2; 32]).public(),
        address: ALICE,
        rate_bps: 1_000_000,
        passage: Passage::of(&[Right::Ip, Right::Dif].into(), NODE),
    }]);
    match kind % 3 {
        0 => {
            point.handle_datagram(Instant::ZERO, from, bytes, &mut Strict);
            false
        }
        1 => {
            point.handle_packet(Instant::ZERO, bytes, &mut Strict);
            false
        }
        _ => {
            let request: Option<Request> = message(bytes, USER, POINT);
            let reply: Option<Reply> = message(bytes, POINT, USER);
            if let Some(request) = &request {
                let again = packet(USER, POINT, request);
                assert_eq!(message(&again, USER, POINT).as_ref(), Some(request));
            }
            if let Some(reply) = &reply {
                let again = packet(POINT, USER, reply);
                assert_eq!(message(&again, POINT, USER).as_ref(), Some(reply));
            }
            request.is_some() || reply.is_some()
        }
    }
}

/// What may come of bytes that no one has encrypted: answers of a handshake, and echos.
struct Strict;

impl Sink for Strict {
    fn send(&mut self, _: SocketAddr, datagram: &[u8]) -> bool {
        assert!(datagram.len() <= 2048);
        true
    }

    fn deliver(&mut self, packet: &[u8]) -> bool {
        // An echo of its own address.
        assert_eq!(packet[12..16], OWN.octets());
        true
    }

    fn request(&mut self, _: (u32, IpAddr), _: PublicKey, request: Request) -> bool {
        panic!("{request:?} came out of bytes that no one has encrypted");
    }
}

const NODE: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 2);
const ALICE: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 3);
