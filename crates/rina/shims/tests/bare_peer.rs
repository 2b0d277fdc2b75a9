//! Tests a data plane with a peer that the test itself implements, record by record.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_dataplane::{Command, DataPlane, Event};
use carina_engine::counters::{Kind, Table, Value, read};
use carina_ring::State;
use carina_shims::HvBuilder;
use carina_sys::monotonic_ns;
use carina_vmpi::hl::{Config, Endpoint, Event as HlEvent, Rx, Side};
use carina_vmpi::ll::memfd::MemfdRegion;
use carina_vmpi::ll::{LinkState, VmpiImpl};
use carina_wire::vmpi::{BUNDLE_HEADER_BYTES, BundleHeader, Channel, DataHeader, HEADER_BYTES};

use crate::pair::{self, App, IPCP, PATIENCE, Random, closed_reason, name, ring, wait_for};

/// A guest without a data plane, whose device the test drives.
struct Bare {
    device: Box<dyn VmpiImpl + Send>,
    hl: Endpoint,
    is_connected: bool,
    /// Data records as they were in the ring, including headers.
    records: Vec<Vec<u8>>,
    events: Vec<HlEvent>,
}

impl Bare {
    /// A guest that accepts SDUs and bundles up to these lengths.
    fn new(region: &MemfdRegion, sdu_bytes_max: u64, bundle_bytes_max: u32) -> Bare {
        let device = region.device(Side::Guest).unwrap();
        let config = Config {
            sdu_bytes_max,
            bundle_bytes_max,
            ..Config::new(Side::Guest, "bare", device.record_bytes_max())
        };
        let mut hl = Endpoint::new(config).unwrap();
        hl.register("echo").unwrap();
        Bare {
            device,
            hl,
            is_connected: false,
            records: Vec::new(),
            events: Vec::new(),
        }
    }

    fn turn(&mut self) {
        let now = monotonic_ns();
        match self.device.link(now) {
            LinkState::Up if !self.is_connected => {
                self.is_connected = true;
                self.hl.link_up(carina_time::Instant::from_nanos(now));
            }
            LinkState::Up => {}
            LinkState::Down(reason) => {
                self.hl.link_down(reason.code(), &reason.to_string());
                self.is_connected = false;
            }
        }
        while let Ok(Some(lease)) = self.device.next() {
            let record = lease.to_vec();
            let header = lease.copy_prefix::<HEADER_BYTES>().unwrap();
            if BundleHeader::is_in(header) {
                let header = record.first_chunk().copied();
                let bytes = record.len() - BUNDLE_HEADER_BYTES;
                self.hl.on_bundle(header, bytes, Some(0)).unwrap();
                self.records.push(record);
                continue;
            }
            match self.hl.on_rx(header, record.len()).unwrap() {
                Rx::Control => self.hl.handle_control(&record[HEADER_BYTES..]).unwrap(),
                Rx::Deliver { .. } => self.records.push(record),
                Rx::Discard => {}
            }
        }
        self.device.release();
        let mut message = Vec::new();
        while self.device.free_bytes().unwrap_or(0) > 4096 && self.hl.poll_control(&mut message) {
            self.put(Channel::CONTROL, &message);
        }
        while let Some(event) = self.hl.poll_event() {
            self.events.push(event);
        }
    }

    fn put(&mut self, channel: Channel, payload: &[u8]) {
        let mut slot = self.device.reserve(HEADER_BYTES + payload.len()).unwrap();
        slot.write_at(
            0,
            &DataHeader {
                channel,
                more: false,
            }
            .encode(),
        );
        slot.write_at(HEADER_BYTES, payload);
        slot.commit(false);
        self.device.publish();
    }

    /// Sends several SDUs in one record. Each has the header of a ring record.
    fn put_bundle(&mut self, channel: Channel, bundle: &[u8]) {
        let len = BUNDLE_HEADER_BYTES + bundle.len();
        let mut slot = self.device.reserve(len).unwrap();
        slot.write_at(0, &BundleHeader { channel }.encode());
        slot.write_at(BUNDLE_HEADER_BYTES, bundle);
        slot.commit(false);
        self.device.publish();
    }

    fn until<T>(&mut self, mut wanted: impl FnMut(&mut Bare) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            self.turn();
            if let Some(value) = wanted(self) {
                return value;
            }
            assert!(
                Instant::now() < end,
                "waited in vain, got {:?}",
                self.events
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until `holds` returns true. Returns false if the link goes down first.
    fn until_or_down(&mut self, mut holds: impl FnMut() -> bool) -> bool {
        self.until(|bare| {
            let is_down = |event: &HlEvent| matches!(event, HlEvent::Down { .. });
            if bare.events.iter().any(is_down) {
                Some(false)
            } else {
                holds().then_some(true)
            }
        })
    }
}

struct Host {
    plane: DataPlane,
    table: std::path::PathBuf,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.table);
    }
}

impl Host {
    fn count(&self, kind: Kind, value: Value) -> u64 {
        let rows = read(&self.table).unwrap();
        rows.iter()
            .filter(|row| row.kind == kind)
            .map(|row| row.get(value))
            .sum()
    }

    /// Waits until a counter has this value, which may be a moment after the event.
    fn counts(&self, kind: Kind, value: Value, wanted: u64) {
        let end = Instant::now() + PATIENCE;
        while self.count(kind, value) != wanted {
            let counted = self.count(kind, value);
            assert!(
                Instant::now() < end,
                "{counted}, not {wanted}: {value:?} of {kind:?}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A host and a bare guest with one flow between them.
fn flow(label: &str, sdu_bytes_max: u64) -> (Host, Bare, App, carina_api::PortId, Channel) {
    flow_with(label, sdu_bytes_max, 0)
}

/// The same with a guest that accepts bundles.
fn flow_with(
    label: &str,
    sdu_bytes_max: u64,
    bundle_bytes_max: u32,
) -> (Host, Bare, App, carina_api::PortId, Channel) {
    let table = std::env::temp_dir().join(format!("carina-bare-{}-{label}", std::process::id()));
    let plane = DataPlane::spawn(Table::create(&table).unwrap()).unwrap();
    let host = Host { plane, table };
    let region = MemfdRegion::create(1 << 20).unwrap();
    let device = region.device(Side::Host).unwrap();
    let builder = HvBuilder {
        label: "a".to_owned(),
        device,
        side: Side::Host,
        name: "host".to_owned(),
    };
    host.plane.add_ipcp(IPCP, Box::new(builder));
    let mut bare = Bare::new(&region, sdu_bytes_max, bundle_bytes_max);
    bare.until(|bare| bare.hl.is_up().then_some(()));
    bare.until(|_| match host.plane.poll_event() {
        Some(Event::PeerRegistered { name, .. }) => (name.as_str() == "echo").then_some(()),
        _ => None,
    });
    let (end, app) = ring(1 << 20);
    let port = carina_api::PortId(5);
    host.plane.send(Command::Allocate {
        ipcp: IPCP,
        port,
        local: name("caller"),
        remote: name("echo"),
        spec: carina_api::FlowSpec::reliable(),
        end,
    });
    let channel = bare.until(|bare| match bare.events.pop() {
        Some(HlEvent::Incoming { channel, .. }) => Some(channel),
        _ => None,
    });
    bare.hl.respond(channel, Ok(1 << 16)).unwrap();
    bare.until(|_| match host.plane.poll_event() {
        Some(Event::AllocateResult { result, .. }) => result.is_ok().then_some(()),
        _ => None,
    });
    (host, bare, app, port, channel)
}

#[test]
fn sdu_has_only_four_bytes_of_header_in_the_ring() {
    let (host, mut bare, mut app, _, channel) = flow("header", 1 << 30);
    let sdus: Vec<Vec<u8>> = [0, 1, 64, 4000].map(|len| Random::new(3).bytes(len)).into();
    for sdu in &sdus {
        app.send(sdu);
    }
    bare.until(|bare| (bare.records.len() == sdus.len()).then_some(()));
    for (record, sdu) in bare.records.iter().zip(&sdus) {
        assert_eq!(record.len(), sdu.len() + 4);
        assert_eq!(record[..4], [channel.number() as u8, 0, 0, 0]);
        assert!(record[4..] == *sdu);
    }
    for kind in [Kind::Ipcp, Kind::Flow] {
        let (sdus, bytes) = match kind {
            Kind::Flow => (Value::SdusIn, Value::BytesIn),
            _ => (Value::SdusOut, Value::BytesOut),
        };
        host.counts(kind, sdus, 4);
        host.counts(kind, bytes, 4065);
    }
    host.counts(Kind::Flow, Value::Channel, u64::from(channel.number()));
}

/// SDUs in the format of a ring.
fn bundle_of(sdus: &[&[u8]]) -> Vec<u8> {
    let mut bundle = Vec::new();
    for sdu in sdus {
        bundle.extend((sdu.len() as u64).to_le_bytes());
        bundle.extend(*sdu);
        bundle.resize(bundle.len().next_multiple_of(8), 0);
    }
    bundle
}

#[test]
fn sdus_of_a_bundle_reach_the_application_one_by_one() {
    let (host, mut bare, mut app, _, channel) = flow("bundle", 1 << 30);
    let sdus: [&[u8]; 4] = [b"", b"hello", &[7; 4000], b"end"];
    bare.put_bundle(channel, &bundle_of(&sdus));
    bare.put(channel, b"single");
    bare.put_bundle(channel, &bundle_of(&sdus[3..]));
    for sdu in sdus.into_iter().chain([&b"single"[..], b"end"]) {
        assert!(app.recv().unwrap() == sdu);
    }
    let counted = [
        (Kind::Ipcp, Value::SdusIn, Value::BytesIn),
        (Kind::Flow, Value::SdusOut, Value::BytesOut),
    ];
    for (kind, sdus, bytes) in counted {
        host.counts(kind, sdus, 6);
        host.counts(kind, bytes, 4017);
    }
}

#[test]
fn sdus_that_wait_together_leave_in_one_record() {
    let (host, mut bare, mut app, _, channel) = flow_with("together", 1 << 30, 1000);
    let sdus: [&[u8]; 5] = [b"", b"hello", &[7; 500], &[8; 500], &[9; 2000]];
    for sdu in sdus {
        app.end.tx.push(&[sdu], false).unwrap();
    }
    app.end.publish();
    bare.until(|bare| (bare.records.len() == 3).then_some(()));
    // One bundle with as many SDUs as it may hold; then a single SDU, and one that is too long for
    // a bundle.
    let (header, bundle) = bare.records[0].split_at(BUNDLE_HEADER_BYTES);
    assert_eq!(header, BundleHeader { channel }.encode());
    assert!(bundle == bundle_of(&sdus[..3]));
    for (record, sdu) in bare.records[1..].iter().zip(&sdus[3..]) {
        assert!(record[HEADER_BYTES..] == **sdu);
    }
    host.counts(Kind::Ipcp, Value::SdusOut, 5);
    host.counts(Kind::Ipcp, Value::BytesOut, 3005);
    host.counts(Kind::Flow, Value::SdusIn, 5);
}

#[test]
fn broken_bundle_costs_its_flow_and_not_the_link() {
    let whole = bundle_of(&[b"one", b"two"]);
    // A length beyond the end, a flag, and bytes after the last SDU.
    let mut long = whole.clone();
    long[16] = 200;
    let mut flagged = whole.clone();
    flagged[20] = 1;
    let behind = [&whole[..], &[0; 4], &[1; 4]].concat();
    for (number, bundle) in [long, flagged, behind].into_iter().enumerate() {
        let (host, mut bare, mut app, port, channel) = flow(&format!("broken-{number}"), 1 << 30);
        bare.put_bundle(channel, &bundle);
        let reason = bare.until(|_| match host.plane.poll_event() {
            Some(Event::FlowClosed { port: p, reason }) if p == port => Some(reason),
            _ => None,
        });
        assert!(reason.contains("broke its SDUs"), "{reason}");
        assert_eq!(app.recv(), Err(State::Failed));
        host.counts(Kind::Ipcp, Value::DropMalformed, 1);
        bare.turn();
        assert!(bare.hl.is_up());
    }
}

#[test]
fn too_long_sdu_costs_its_flow_and_not_the_link() {
    let (host, mut bare, mut app, port, _) = flow("long", 10_000);
    app.send(&[1; 10_000]);
    bare.until(|bare| (bare.records.len() == 1).then_some(()));
    app.send(&[1; 10_001]);
    let reason = bare.until(|_| match host.plane.poll_event() {
        Some(Event::FlowClosed { port: p, reason }) if p == port => Some(reason),
        _ => None,
    });
    assert!(reason.contains("more than 10000 bytes"), "{reason}");
    assert_eq!(app.recv(), Err(State::Failed));
    host.counts(Kind::Ipcp, Value::DropTooLong, 1);
    bare.turn();
    assert!(bare.hl.is_up());
}

#[test]
fn guest_that_overruns_credit_is_cut_off_and_counted() {
    let (host, mut bare, mut app, port, channel) = flow("overrun", 1 << 30);
    // The window is the application's ring of 1 MiB, and the application reads nothing. The record
    // that exceeds the window takes the link down.
    let end = Instant::now() + PATIENCE;
    let reason = loop {
        // Keeps the device alive for the host.
        let _ = bare.device.link(monotonic_ns());
        if bare.device.free_bytes().unwrap_or(0) > 8192 {
            bare.put(channel, &[0; 4000]);
        }
        if let Some(Event::FlowClosed { port: p, reason }) = host.plane.poll_event() {
            assert_eq!(p, port);
            break reason;
        }
        assert!(Instant::now() < end);
    };
    assert!(reason.contains("beyond the credit limit"), "{reason}");
    while app.recv().is_ok() {}
    assert_eq!(app.recv(), Err(State::Failed));
    host.counts(Kind::Ipcp, Value::DropOverrun, 1);
    host.counts(Kind::Ipcp, Value::LinksDown, 1);
    // A guest that keeps to the protocol may reconnect after a pause.
    bare.hl.link_down("test", "start over");
    bare.is_connected = false;
    bare.until(|bare| bare.hl.is_up().then_some(()));
}

#[test]
fn data_on_a_channel_that_is_not_open_is_counted_and_dropped() {
    let (host, mut bare, mut app, _, channel) = flow("unknown", 1 << 30);
    bare.put(Channel::new(77), b"nobody");
    bare.put(channel, b"somebody");
    assert_eq!(app.recv().unwrap(), b"somebody");
    host.counts(Kind::Ipcp, Value::DropUnknownChannel, 1);
}

#[test]
fn flood_of_registrations_waits_for_the_manager() {
    // If the machine stops the peer for long, the host considers it dead, and the attempt proves
    // nothing.
    assert!((0..50).any(|_| floods()), "the link never stays up");
}

/// Floods a host whose manager reads no events. Returns false when the link went down meanwhile.
fn floods() -> bool {
    let (host, mut bare, _app, port, _) = flow("flood", 1 << 30);
    for round in 0..40 {
        for n in 0..400 {
            let name = format!("name-{n}");
            if round % 2 == 0 {
                bare.hl.register(&name).unwrap();
            } else {
                bare.hl.unregister(&name);
            }
        }
        bare.turn();
    }
    let taken = || host.count(Kind::Ipcp, Value::ControlIn);
    if !bare.until_or_down(|| taken() > EVENTS_MAX - FEW) {
        return false;
    }
    // Gives the host time to read more.
    std::thread::sleep(Duration::from_millis(100));
    assert!(taken() < EVENTS_MAX + FEW, "{} without waiting", taken());
    let (mut seen, mut is_closed) = (0, false);
    let mut hear = || {
        while let Some(event) = host.plane.poll_event() {
            seen += 1;
            is_closed |= matches!(event, Event::FlowClosed { port: p, .. } if p == port);
        }
        (seen, is_closed)
    };
    if !bare.until_or_down(|| hear().0 > 2 * EVENTS_MAX) {
        return false;
    }
    host.plane.send(Command::Deallocate {
        port,
        reason: String::new(),
    });
    bare.until_or_down(|| hear().1)
}

/// Most events of a shim that may wait for the manager.
const EVENTS_MAX: u64 = 4096;
/// Control messages that cause no events, and events without a message.
const FEW: u64 = 100;

#[test]
fn vm_that_scribbles_over_its_region_disturbs_no_other_vm() {
    let mut pair = pair::Pair::up();
    // The flow comes first, because it skips events such as the end of the other link.
    let (mut host_app, mut guest_app, port, _) = pair.flow();
    let second = MemfdRegion::create(1 << 20).unwrap();
    let hostile = carina_api::IpcpId(2);
    let device = second.device(Side::Host).unwrap();
    let name = "host".to_owned();
    let builder = HvBuilder {
        label: "hostile".to_owned(),
        device,
        side: Side::Host,
        name,
    };
    pair.host.add_ipcp(hostile, Box::new(builder));
    let mut bare = Bare::new(&second, 1 << 30, 0);
    bare.until(|bare| bare.hl.is_up().then_some(()));
    let memory = second.memory().map().unwrap();
    let is_enough = Arc::new(AtomicBool::new(false));
    let enough = Arc::clone(&is_enough);
    let scribbler = std::thread::spawn(move || {
        let mut random = Random::new(1);
        for round in 0.. {
            if round >= 60 && enough.load(Ordering::Relaxed) {
                return;
            }
            let bytes = random.bytes(memory.len());
            memory.write(0, &bytes);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let mut n = 0u64;
    while !scribbler.is_finished() {
        host_app.send(&Random::new(n).bytes((n % 5000) as usize));
        assert!(guest_app.recv().unwrap() == Random::new(n).bytes((n % 5000) as usize));
        n += 1;
        is_enough.store(n > 100, Ordering::Relaxed);
    }
    scribbler.join().unwrap();
    wait_for(&pair.host, |event| match event {
        Event::LinkDown { ipcp, .. } => (*ipcp == hostile).then_some(()),
        Event::FlowClosed { port: p, .. } => {
            assert_ne!(*p, port);
            None
        }
        _ => None,
    });
    host_app.end.close(State::Closed);
    assert_eq!(
        closed_reason(&pair.host, port),
        "the application closed the flow"
    );
}
