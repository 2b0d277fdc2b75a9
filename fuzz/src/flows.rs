//! Frames that are measured by `ipfix`, and the messages that come of them.

use carina_apps::ipfix::flow_table::{Ended, FlowTable, Timeouts};
use carina_apps::ipfix::message::Exporter;
use carina_apps::ipfix::packet::Packet;
use carina_frame::{Pool, PoolConfig};
use carina_time::{Duration, Instant};

/// Frames: see [`measures_flows`].
pub fn ipfix_flows(data: &[u8]) {
    measures_flows(data);
}

/// Each frame is a byte of seconds since the one before and of whether it has a tag beside its
/// bytes, a byte of its length, and its bytes. True when some flow was measured. However frames
/// look, packets that were measured and those of records are as many, the table keeps its bound,
/// and messages are whole and no longer than they may be.
pub fn measures_flows(data: &[u8]) -> bool {
    const FLOWS_MAX: usize = 3;
    const LONGEST: usize = 300;
    let pool = Pool::new(PoolConfig {
        frames: 4,
        frame_bytes: 2048,
    });
    let pool = pool.expect("memory for 4 frames");
    let timeouts = Timeouts {
        idle: Duration::from_secs(20),
        active: Duration::from_secs(90),
    };
    let mut table = FlowTable::new(FLOWS_MAX);
    let mut exporter = Exporter::new(7, LONGEST);
    let mut seen = Seen::default();
    let (mut now, mut measured) = (Instant::ZERO, 0);
    let mut rest = data;
    while let [how, length, behind @ ..] = rest {
        let (bytes, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        now += Duration::from_secs(u64::from(how >> 1));
        let Some(mut frame) = pool.frame_of(bytes) else {
            continue;
        };
        frame.set_vlan((how & 1 != 0).then_some(0x2005));
        let mut ended: Vec<Ended> = Vec::new();
        if let Ok(packet) = Packet::read(&frame) {
            measured += 1;
            ended.extend(table.measure(&packet, now));
        }
        assert!(table.len() <= FLOWS_MAX);
        while let Some(one) = table.take_ended(&timeouts, now) {
            ended.push(one);
        }
        for one in &ended {
            assert!(one.flow.first <= one.flow.last && one.flow.last <= now);
            seen.packets += one.flow.packets;
            let full = exporter.add(
                one,
                Duration::from_secs(1_000_000),
                now.since(Instant::ZERO),
            );
            full.iter()
                .for_each(|message| seen.check_message(message, LONGEST));
        }
    }
    let end = now + Duration::from_secs(1000);
    while let Some(one) = table.take_ended(&timeouts, end) {
        seen.packets += one.flow.packets;
        let full = exporter.add(&one, Duration::ZERO, Duration::ZERO);
        full.iter()
            .for_each(|message| seen.check_message(message, LONGEST));
    }
    let last = exporter.flush(Duration::ZERO);
    last.iter()
        .for_each(|message| seen.check_message(message, LONGEST));
    assert_eq!((seen.packets, table.len()), (measured, 0));
    measured > 0
}

/// What messages had.
#[derive(Default)]
struct Seen {
    packets: u64,
    records: u32,
}

impl Seen {
    /// Walks a message, whose sets must fill it with whole records.
    fn check_message(&mut self, message: &[u8], longest: usize) {
        let half = |at: usize| usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
        assert!(message.len() <= longest);
        assert_eq!((half(0), half(2)), (10, message.len()));
        assert_eq!(message[8..12], self.records.to_be_bytes());
        let mut at = 16;
        while at < message.len() {
            let (id, length) = (half(at), half(at + 2));
            let record = match id {
                256 => 36 + 8 + 6,
                257 => 36 + 32 + 6,
                258 => 36 + 8 + 2,
                259 => 36 + 32 + 2,
                _ => panic!("no template {id}"),
            };
            assert!(length > 4 && (length - 4).is_multiple_of(record));
            self.records += ((length - 4) / record) as u32;
            at += length;
        }
        assert_eq!(at, message.len());
    }
}
