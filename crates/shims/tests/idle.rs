//! What two data planes cost when nothing happens. Alone in its process, whose CPU time it reads.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod pair;

use std::time::Duration;

use pair::{Pair, ring};

#[test]
fn two_idle_data_planes_with_many_flows_use_under_one_percent_of_a_core_each() {
    let mut pair = Pair::up();
    let mut flows = Vec::new();
    for _ in 0..200 {
        let (host_end, host_app) = ring(1 << 14);
        let (guest_end, guest_app) = ring(1 << 14);
        pair.connect(host_end, guest_end);
        flows.push((host_app, guest_app));
    }
    for (host, guest) in &mut flows {
        host.send(b"hello");
        assert_eq!(guest.recv().unwrap(), b"hello");
    }
    std::thread::sleep(Duration::from_millis(200));
    let cpu = || carina_sys::cpu_time_ns(carina_sys::CpuClock::Process);
    let before = cpu();
    std::thread::sleep(Duration::from_secs(2));
    let used = cpu() - before;
    println!(
        "two data planes, 200 idle flows: {} us of CPU per second",
        used / 2_000
    );
    assert!(used < 40_000_000, "{used} ns of CPU in two seconds");
    let (host, guest) = &mut flows[137];
    host.send(b"awake");
    assert_eq!(guest.recv().unwrap(), b"awake");
}
