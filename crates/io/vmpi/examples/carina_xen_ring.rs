//! The bare ring over grants of Xen: one domain echoes records, the other counts round trips.
//!
//! ```sh
//! carina_xen_ring guest                 # in a domain: grants a region to Dom0, echoes
//! carina_xen_ring host NAME RECORDS     # in Dom0: sends records of 1400 bytes to the domain NAME
//! ```

use std::time::{Duration, Instant};

use carina_sys::{Epoll, Interest, monotonic_ns};
use carina_vmpi::ll::{LinkState, VmpiImpl, xen};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["guest"] => echo(&mut *xen::open_guest(xen::DOM0).expect("a domain of Xen")),
        ["host", name, records] => {
            let port = xen::HostPort::open(name, xen::REGION_BYTES).expect("Dom0 of Xen");
            let records = records.parse().expect("a number of records");
            ping(&mut *port.device().expect("a device"), records);
        }
        _ => eprintln!("usage: carina_xen_ring guest | host NAME RECORDS"),
    }
}

/// Sends each record back, for ever.
fn echo(device: &mut dyn VmpiImpl) {
    let mut last = LinkState::Up;
    loop {
        let state = device.link(monotonic_ns());
        if state != last {
            println!("link: {state:?}");
            last = state;
        }
        let mut moved = false;
        while let Ok(Some(lease)) = device.next() {
            let bytes = lease.to_vec();
            drop(lease);
            if let Ok(mut slot) = device.reserve(bytes.len()) {
                slot.write_at(0, &bytes);
                slot.commit(false);
            }
            moved = true;
        }
        device.release();
        device.publish();
        if !moved {
            sleep(device);
        }
    }
}

/// Sends records one after another, each when the one before came back, and prints the times.
fn ping(device: &mut dyn VmpiImpl, records: u64) {
    let start = Instant::now();
    let (mut sent, mut received, mut up) = (0_u64, 0_u64, None);
    let mut last = LinkState::Up;
    while received < records {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{sent} sent, {received} came back"
        );
        let state = device.link(monotonic_ns());
        if state != last {
            println!("link: {state:?} after {:?}", start.elapsed());
            last = state.clone();
        }
        if state != LinkState::Up {
            sleep(device);
            continue;
        }
        up.get_or_insert_with(Instant::now);
        if sent == received {
            let record = [sent as u8; 1400];
            let mut slot = device
                .reserve(record.len())
                .expect("an empty ring has room");
            slot.write_at(0, &record);
            slot.commit(false);
            device.publish();
            sent += 1;
        }
        match device.next().expect("a ring that is not broken") {
            Some(lease) => {
                assert_eq!(lease.to_vec(), vec![received as u8; 1400]);
                received += 1;
                drop(lease);
                device.release();
            }
            None => sleep(device),
        }
    }
    let each = up.map(|up| up.elapsed() / records as u32);
    println!("{records} round trips, each {each:?}; {:?}", device.stats());
}

fn sleep(device: &mut dyn VmpiImpl) {
    let epoll = Epoll::new().expect("an epoll");
    let fd = device.wait_fd().expect("a device that is woken");
    epoll.add(fd, 0, Interest::Read).expect("a descriptor");
    if device.arm(monotonic_ns()) {
        let wait_ns = device.next_deadline_ns().saturating_sub(monotonic_ns());
        epoll.wait(&mut Vec::new(), Some(wait_ns)).expect("a wait");
    }
    device.disarm();
}
