//! Tests of the loops over every transport that needs no node.

use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

use super::*;
use crate::traffic::{Arrivals, Rate};
use crate::transport::TransportError;
use crate::transport::bare::{BarePlace, BareTransport};
use crate::transport::tcp::TcpTransport;
use crate::transport::udp::UdpTransport;
use crate::transport::unix::UnixTransport;
use crate::trial::job::{Direction, Via};

fn job(sizes: &str, count: u64) -> Job {
    Job {
        direction: Direction::Forward,
        via: Via::Flow { ticket: 0 },
        sizes: sizes.parse().unwrap(),
        rate: None,
        arrivals: Arrivals::Constant,
        duration_ns: 0,
        count,
        seed: 5,
        verify: true,
        interval_ns: 0,
        pin: None,
    }
}

fn one_way<C: Transport + Send>(mut from: C, mut to: C, job: &Job) -> (SideReport, SideReport) {
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || send(&mut from, job).unwrap());
        let received = receive(&mut to, job, &mut |_| {}).unwrap();
        (sender.join().unwrap(), received)
    })
}

fn echo<C: Transport + Send>(mut from: C, mut to: C, job: &Job) -> SideReport {
    std::thread::scope(|scope| {
        let server = scope.spawn(move || reflect(&mut to, job).unwrap());
        let seen = ping(&mut from, job, &mut |_| {}).unwrap();
        drop(from);
        assert_eq!(server.join().unwrap().sent, seen.received);
        seen
    })
}

fn unix() -> (UnixTransport, UnixTransport) {
    let (a, b) = carina_sys::socketpair_seqpacket().unwrap();
    (
        UnixTransport::new(a).unwrap(),
        UnixTransport::new(b).unwrap(),
    )
}

fn tcp() -> (TcpTransport, TcpTransport) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (
        TcpTransport::new(client).unwrap(),
        TcpTransport::new(server).unwrap(),
    )
}

fn udp() -> (UdpTransport, UdpTransport) {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (a, at_a) = UdpTransport::bind(loopback).unwrap();
    let (b, at_b) = UdpTransport::bind(loopback).unwrap();
    (
        UdpTransport::connect(a, at_b).unwrap(),
        UdpTransport::connect(b, at_a).unwrap(),
    )
}

fn bare(name: &str) -> (BareTransport, BareTransport) {
    let path = std::env::temp_dir().join(format!("carina-bare-{name}-{}", std::process::id()));
    // The rings are behind other content of the file, which must stay.
    std::fs::write(&path, [7; 4096]).unwrap();
    let place = BarePlace { path, offset: 4096 };
    // The second call finds rings that were used.
    let _ = [(); 2].map(|()| BareTransport::prepare(&place).unwrap());
    let ends = (
        BareTransport::open(&place, true).unwrap(),
        BareTransport::open(&place, false).unwrap(),
    );
    assert_eq!(std::fs::read(&place.path).unwrap()[..4096], [7; 4096]);
    std::fs::remove_file(&place.path).unwrap();
    ends
}

fn assert_all_arrived(seen: &(SideReport, SideReport)) {
    let (sent, received) = seen;
    assert_eq!(
        (received.received, received.received_bytes),
        (sent.sent, sent.sent_bytes)
    );
    assert_eq!(received.damaged, 0);
    let tally = received.tally.unwrap();
    assert_eq!((tally.duplicates, tally.reordered), (0, 0));
}

#[test]
fn sure_transports_deliver_every_sdu_whole() {
    let job = job("uniform:1..9000", 3000);
    let (a, b) = unix();
    assert_all_arrived(&one_way(a, b, &job));
    let (a, b) = tcp();
    assert_all_arrived(&one_way(a, b, &job));
    let (a, b) = bare("one-way");
    assert_all_arrived(&one_way(a, b, &job));
}

#[test]
fn udp_loss_is_counted_and_what_arrives_is_whole() {
    let (a, b) = udp();
    let (sent, received) = one_way(a, b, &job("512", 20_000));
    assert_eq!(received.damaged, 0);
    assert!(received.received > 0 && received.received <= sent.sent);
    assert_eq!(received.tally.unwrap().distinct, received.received);
}

#[test]
fn echoes_come_back_whole_and_are_timed() {
    let job = job("uniform:16..2000", 300);
    let (a, b) = unix();
    let (c, d) = tcp();
    let (e, f) = udp();
    for seen in [echo(a, b, &job), echo(c, d, &job), echo(e, f, &job)] {
        assert_eq!((seen.received, seen.damaged), (300, 0));
        assert!(
            seen.rtt_us
                .is_some_and(|rtt| rtt.min > 0.0 && rtt.count == 300)
        );
    }
}

#[test]
fn sender_never_exceeds_its_rate() {
    let (a, b) = unix();
    let mut job = job("100", 200);
    job.rate = Some(Rate::Sdus(1000.0));
    let (sent, _) = one_way(a, b, &job);
    // 200 SDUs at equal distances of 1 ms: the last leaves 199 ms after the first.
    let elapsed_ms = sent.elapsed_ns as f64 / 1e6;
    assert!(elapsed_ms >= 198.0, "{elapsed_ms} ms");
}

#[test]
fn sender_that_sends_nothing_leaves_an_empty_report() {
    let (mut a, mut b) = unix();
    a.finish().unwrap();
    let seen = receive(&mut b, &job("64", 1), &mut |_| {}).unwrap();
    assert_eq!(seen, SideReport::default());
    assert_eq!((seen.goodput_mbps(), seen.sdus_per_s()), (0.0, 0.0));
}

/// A transport that accepts and delivers some SDUs, and then stalls.
struct Stuck {
    takes: u64,
    gives: u64,
    is_lossy: bool,
}

impl Transport for Stuck {
    fn send_until(&mut self, _sdu: &[u8], until: Instant) -> Result<bool, TransportError> {
        if self.takes == 0 {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            return Ok(false);
        }
        self.takes -= 1;
        Ok(true)
    }

    fn recv(&mut self, _buffer: &mut [u8], limit: Duration) -> Result<Arrival, TransportError> {
        assert!(limit < crate::transport::FOR_EVER, "no side waits for ever");
        if self.gives == 0 {
            std::thread::sleep(limit);
            return Ok(Arrival::Idle);
        }
        self.gives -= 1;
        Ok(Arrival::Sdu(8))
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    fn is_lossy(&self) -> bool {
        self.is_lossy
    }
}

/// A job with an end time, and a transport that stalls after it accepted `takes` and delivered
/// `gives` SDUs.
fn stuck(takes: u64, gives: u64, is_lossy: bool) -> (Job, Stuck) {
    let mut job = job("8", 0);
    job.verify = false;
    job.duration_ns = 100_000_000;
    let transport = Stuck {
        takes,
        gives,
        is_lossy,
    };
    (job, transport)
}

#[test]
fn sender_on_a_stalled_transport_has_its_end_time() {
    for is_lossy in [false, true] {
        let (mut job, mut transport) = stuck(5, 0, is_lossy);
        let seen = send(&mut transport, &job).unwrap();
        assert_eq!((seen.sent, seen.ending), (5, Ending::Finished));
        // A sender that was held back for longer than a second reports it.
        job.duration_ns = 1_200_000_000;
        transport.takes = 5;
        let seen = send(&mut transport, &job).unwrap();
        assert_eq!((seen.sent, seen.ending), (5, Ending::HeldBack));
    }
}

#[test]
fn receiver_of_a_stalled_transport_reports_what_arrived() {
    for (gives, is_lossy) in [(7, false), (0, false), (7, true)] {
        let (mut job, mut transport) = stuck(0, gives, is_lossy);
        // The silence before the end time is too long to come from a lost end mark.
        job.duration_ns = 1_000_000_000;
        let seen = receive(&mut transport, &job, &mut |_| {}).unwrap();
        assert_eq!((seen.received, seen.ending), (gives, Ending::Stalled));
    }
}

#[test]
fn receiver_waits_for_slow_sdus_only_so_long() {
    struct Slow;
    impl Transport for Slow {
        fn send_until(&mut self, _: &[u8], _: Instant) -> Result<bool, TransportError> {
            Ok(true)
        }
        fn recv(
            &mut self,
            _buffer: &mut [u8],
            _limit: Duration,
        ) -> Result<Arrival, TransportError> {
            std::thread::sleep(Duration::from_millis(20));
            Ok(Arrival::Sdu(8))
        }
        fn finish(&mut self) -> Result<(), TransportError> {
            Ok(())
        }
    }
    let (job, _) = stuck(0, 0, false);
    let seen = receive(&mut Slow, &job, &mut |_| {}).unwrap();
    assert_eq!(seen.ending, Ending::Late);
    assert!(seen.received > 0);
}

#[test]
fn echo_over_a_stalled_transport_has_its_end_time() {
    // Once there is no answer, and once no room for the next SDU.
    for (takes, gives, rounds) in [(9, 3, 3), (4, 4, 4)] {
        let (job, mut transport) = stuck(takes, gives, false);
        let seen = ping(&mut transport, &job, &mut |_| {}).unwrap();
        assert_eq!((seen.received, seen.ending), (rounds, Ending::Stalled));
        let (job, mut transport) = stuck(gives, takes, false);
        let seen = reflect(&mut transport, &job).unwrap();
        assert_eq!(seen.sent, rounds);
        assert_ne!(seen.ending, Ending::Finished);
    }
}

#[test]
fn pace_slower_than_the_end_time_does_not_pass_it() {
    let (mut job, mut transport) = stuck(u64::MAX, 0, false);
    job.rate = Some(Rate::Sdus(0.001));
    // The second SDU would be due after a quarter of an hour.
    assert_eq!(send(&mut transport, &job).unwrap().sent, 1);
}

#[test]
fn counted_job_ends_when_nothing_moves_any_more() {
    let (mut job, _) = stuck(0, 0, false);
    (job.duration_ns, job.count) = (0, 100);
    let counted = |takes, gives| stuck(takes, gives, false).1;
    let seen = send(&mut counted(5, 0), &job).unwrap();
    assert_eq!((seen.sent, seen.ending), (5, Ending::HeldBack));
    let seen = receive(&mut counted(0, 7), &job, &mut |_| {}).unwrap();
    assert_eq!((seen.received, seen.ending), (7, Ending::Stalled));
    let seen = ping(&mut counted(9, 3), &job, &mut |_| {}).unwrap();
    assert_eq!((seen.received, seen.ending), (3, Ending::Stalled));
    let seen = reflect(&mut counted(9, 3), &job).unwrap();
    assert_eq!((seen.sent, seen.ending), (3, Ending::Stalled));
}

/// Sends to a peer that reads nothing, until there is no room.
fn fill<C: Transport>(transport: &mut C, bytes: usize) -> Result<bool, TransportError> {
    let sdu = vec![0; bytes];
    let until = Instant::now() + Duration::from_millis(300);
    for _ in 0..1_000_000 {
        match transport.send_until(&sdu, until) {
            Ok(true) => {}
            end => return end,
        }
    }
    panic!("a peer that reads nothing took everything");
}

#[test]
fn sockets_whose_peer_reads_nothing_hold_no_sender() {
    let (mut a, _b) = unix();
    assert!(!fill(&mut a, 4000).unwrap());
    // TCP accepts a part of an SDU, which the sender must finish, or whole SDUs only.
    let (mut a, _b) = tcp();
    match fill(&mut a, 100_000) {
        Ok(false) => {}
        Err(TransportError::Stuck { sent, .. }) => assert!(sent > 0),
        other => panic!("{other:?}"),
    }
}
