//! Measures the cost of two idle data planes. The test is alone in its process, because it reads
//! the CPU time of the process.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod pair;

use std::time::Duration;

use pair::{Pair, ring};

#[test]
fn idle_data_planes_with_many_flows_use_under_1_percent_cpu() {
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
    let cpu = || carina_sys::cpu_time_ns(carina_sys::CpuClock::Process);
    // Other load on the machine makes a wake-up more expensive, never cheaper, so the best of
    // several measurements counts. The first one is not idle yet.
    let mut used = u64::MAX;
    for _ in 0..LOOKS_MAX {
        let before = cpu();
        std::thread::sleep(Duration::from_secs(2));
        used = used.min(cpu() - before);
        println!(
            "two data planes, 200 idle flows: {} us of CPU per second",
            used / 2_000
        );
        if used < USED_NS_MAX {
            break;
        }
    }
    assert!(used < USED_NS_MAX, "{used} ns of CPU in two seconds");
    let (host, guest) = &mut flows[137];
    host.send(b"awake");
    assert_eq!(guest.recv().unwrap(), b"awake");
}

const LOOKS_MAX: u32 = 30;
/// Limit of CPU time in two seconds, for two data planes: one percent of a core each.
const USED_NS_MAX: u64 = 40_000_000;
