//! Measures the rate between two data planes that share a region in a memfd, from application ring
//! to application ring.
//!
//! `cargo run --release -p carina-shims --example pair_rate`

#[path = "../tests/pair/mod.rs"]
mod pair;

use std::time::{Duration, Instant};

use pair::{App, Pair};

fn main() {
    println!(
        "{:>8} {:>12} {:>12} {:>12}",
        "sdu", "msgs/s", "MB/s", "cpu ns/sdu"
    );
    for size in [64, 512, 1500, 4000, 65_536, 1 << 20] {
        let mut pair = Pair::up();
        let (host, guest, ..) = pair.flow();
        let count = (2_000_000_000 / (size + 1500)).clamp(500, 1_000_000);
        one_way(host, guest, size, count);
    }
    let mut pair = Pair::up();
    let (host, guest, ..) = pair.flow();
    echo(host, guest);
    let _ = carina_sys::raise_nofile_limit();
    let idle: Vec<_> = (0..300)
        .map(|_| {
            let ((host_end, host), (guest_end, guest)) = (pair::ring(4096), pair::ring(4096));
            pair.connect(host_end, guest_end);
            (host, guest)
        })
        .collect();
    let (host, guest, ..) = pair.flow();
    println!("beside {} idle flows:", idle.len());
    one_way(host, guest, 64, 1_000_000);
}

fn one_way(mut host: App, mut guest: App, size: usize, count: usize) {
    let cpu = || carina_sys::cpu_time_ns(carina_sys::CpuClock::Process);
    let (before, begin) = (cpu(), Instant::now());
    let sender = std::thread::spawn(move || {
        let sdu = vec![7; size];
        for _ in 0..count {
            host.post(&sdu);
        }
        host.end.publish();
        host
    });
    let mut buffer = vec![0; size];
    for _ in 0..count {
        guest.take(&mut buffer);
    }
    let elapsed = begin.elapsed().as_secs_f64();
    let cpu_ns = (cpu() - before) / count as u64;
    drop(sender.join());
    let rate = count as f64 / elapsed;
    println!(
        "{size:>8} {rate:>12.0} {:>12.1} {cpu_ns:>12}",
        rate * size as f64 / 1e6
    );
}

fn echo(mut host: App, mut guest: App) {
    let count = 50_000;
    let server = std::thread::spawn(move || {
        for _ in 0..count {
            let sdu = guest.recv().expect("open");
            guest.send(&sdu);
        }
        guest
    });
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let begin = Instant::now();
            host.send(&[1; 64]);
            host.recv().expect("open");
            begin.elapsed()
        })
        .collect();
    times.sort();
    drop(server.join());
    println!(
        "echo of 64 bytes: median {:?}, p99 {:?}",
        times[count / 2],
        times[count * 99 / 100]
    );
}
