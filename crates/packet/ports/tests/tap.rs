//! Tests of `tap` and `tun`: interfaces of the kernel whose other end is a graph.

use carina_frame::PoolConfig;

use crate::room::Room;
use crate::running::Running;
use crate::traffic::{FAR, OWN, tcp_goes_through, udp_goes_both_ways};

/// Two namespaces: `own` has a TAP device of the graph, which the graph connects with `far`.
fn wired(options: &str, pool: PoolConfig) -> Option<(Room, Room, Running)> {
    let (own, far) = (Room::new()?, Room::new()?);
    far.join("far0", &own, "right", 1500);
    far.ip(&format!("address add {FAR}/24 dev far0"));
    let graph = format!(
        "links = [\"t.output -> right.input\", \"right.output -> t.input\"]\n\
         [apps.t]\nkind = \"tap\"\nname = \"tap0\"\nmtu = 1500\n{options}\n\
         [apps.right]\nkind = \"af_packet\"\ninterface = \"right\"\n{options}\n"
    );
    let running = Running::with(&own, &graph, pool).unwrap();
    own.ip(&format!("address add {OWN}/24 dev tap0"));
    Some((own, far, running))
}

#[test]
fn udp_and_tcp_of_a_tap_leave_by_an_interface() {
    let long = PoolConfig {
        frames: 2048,
        frame_bytes: 66_000,
    };
    for (options, pool) in [
        ("", PoolConfig::default()),
        ("offload = true", PoolConfig::default()),
        ("offload = true", long),
    ] {
        let Some((own, far, running)) = wired(options, pool) else {
            return;
        };
        udp_goes_both_ways(&own, &far);
        tcp_goes_through(&own, &far);
        tcp_comes_back(&own, &far);
        for counter in ["t/drop_cut", "t/drop_unsupported", "right/drop_length"] {
            assert_eq!(running.counter(counter), 0, "{counter}, {options}");
        }
        assert!(running.counter("t.output -> right.input/packets") > 0);
    }
}

/// Like `tcp_goes_through`, but the far side connects, so that data arrives from the TAP device.
fn tcp_comes_back(own: &Room, far: &Room) {
    use std::io::{Read, Write};
    let listener = own.run(|| std::net::TcpListener::bind((OWN, 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let writer = std::thread::spawn({
        let stream = far.run(move || std::net::TcpStream::connect(address).unwrap());
        move || {
            let mut stream = stream;
            stream.write_all(&[7; 300_000]).unwrap();
        }
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    assert!(received == [7; 300_000]);
}

#[test]
fn tap_that_is_taken_away_is_made_again() {
    let Some((own, far, running)) = wired("", PoolConfig::default()) else {
        return;
    };
    udp_goes_both_ways(&own, &far);
    own.ip("link set tap0 down");
    running.until("t/is_up", |is_up| is_up == 0);
    own.ip("link set tap0 up");
    running.until("t/is_up", |is_up| is_up == 1);
    udp_goes_both_ways(&own, &far);
    own.ip("link delete tap0");
    let end = std::time::Instant::now() + crate::traffic::PATIENCE;
    let is_up = || carina_netdev::Interface::named("tap0").is_ok_and(|tap| tap.is_up);
    while !own.run(is_up) {
        assert!(std::time::Instant::now() < end, "it is not made again");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    own.ip(&format!("address add {OWN}/24 dev tap0"));
    udp_goes_both_ways(&own, &far);
    drop(running);
    assert!(
        !own.run(|| carina_netdev::interface_exists("tap0")),
        "it goes with its app"
    );
}

#[test]
fn tap_moved_to_another_namespace_stays_in_use() {
    let Some((own, far, running)) = wired("", PoolConfig::default()) else {
        return;
    };
    udp_goes_both_ways(&own, &far);
    running.until("t/is_up", |is_up| is_up == 1);
    assert_eq!(running.counter("t/is_elsewhere"), 0);
    let Some(elsewhere) = Room::new() else { return };
    own.give("tap0", &elsewhere);
    running.until("t/is_elsewhere", |is_elsewhere| is_elsewhere == 1);
    // The kernel takes an interface down when it moves it.
    elsewhere.ip("link set dev tap0 up");
    elsewhere.ip(&format!("address add {OWN}/24 dev tap0"));
    udp_goes_both_ways(&elsewhere, &far);
    elsewhere.give("tap0", &own);
    running.until("t/is_elsewhere", |is_elsewhere| is_elsewhere == 0);
}

#[test]
fn packets_of_two_tuns_cross_a_graph() {
    let (Some(own), Some(far)) = (Room::new(), Room::new()) else {
        return;
    };
    // Each side has a TUN device; the two graphs are connected by a veth pair.
    own.join("left", &far, "right", 1500);
    let graph = |interface| {
        format!(
            "links = [\"t.output -> wire.input\", \"wire.output -> t.input\"]\n\
             [apps.t]\nkind = \"tun\"\nname = \"tap0\"\n\
             [apps.wire]\nkind = \"af_packet\"\ninterface = \"{interface}\"\n"
        )
    };
    let (left, right) = (
        Running::new(&own, &graph("left")),
        Running::new(&far, &graph("right")),
    );
    own.ip(&format!("address add {OWN} peer {FAR} dev tap0"));
    far.ip(&format!("address add {FAR} peer {OWN} dev tap0"));
    udp_goes_both_ways(&own, &far);
    tcp_goes_through(&own, &far);
    assert!(left.counter("t.output -> wire.input/packets") > 0);
    assert_eq!(right.counter("t/drop_refused"), 0);
}

/// Often a frame arrives during a burst of reads, after the first read has found none.
#[test]
fn every_frame_that_a_tap_reads_is_on_the_link() {
    let Some((own, far, running)) = wired("", PoolConfig::default()) else {
        return;
    };
    udp_goes_both_ways(&own, &far);
    let socket = own.run(|| std::net::UdpSocket::bind((OWN, 0)).unwrap());
    for number in 0..DATAGRAMS {
        socket.send_to(&number.to_be_bytes(), (FAR, 9)).unwrap();
        for _ in 0..number % 97 * 4 {
            std::hint::spin_loop();
        }
    }
    // The kernel counts frames that were read, and those that its full queue dropped.
    let left_and_dropped = || -> (u64, u64) {
        let links = own.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
        let line = links.lines().find(|line| line.contains("tap0:"));
        let numbers = line.unwrap().rsplit(':').next().unwrap();
        let number = |at| numbers.split_whitespace().nth(at).unwrap().parse().unwrap();
        (number(9), number(11))
    };
    running.until("t.output -> right.input/packets", |on_link| {
        let (left, dropped) = left_and_dropped();
        left + dropped >= u64::from(DATAGRAMS) && on_link >= left
    });
}

const DATAGRAMS: u32 = 50_000;
