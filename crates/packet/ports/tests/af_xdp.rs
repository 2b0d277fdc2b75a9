//! A graph in one network namespace forwards between two others, through `af_xdp`.

use std::process::Command;

use crate::af_packet::Three;
use crate::running::Running;
use crate::traffic::{FAR, OWN, tcp_goes_through, udp_burst, udp_goes_both_ways};

const GRAPH: &str = "links = [\"left.output -> right.input\", \"right.output -> left.input\"]\n\
                     [apps.left]\nkind = \"af_xdp\"\ninterface = \"left\"\n\
                     [apps.right]\nkind = \"af_xdp\"\ninterface = \"right\"\n";

/// The namespaces, whose stacks compute checksums themselves. Prints the reason and returns `None`
/// if this cannot be set up.
fn plain() -> Option<Three> {
    let three = Three::new()?;
    for (room, interface) in [(&three.own, "own0"), (&three.far, "far0")] {
        let set = room.run(move || {
            let words = ["-K", interface, "tx", "off"];
            Command::new("ethtool").args(words).output()
        });
        match set {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => {
                println!("SKIP: the program ethtool (package ethtool): {error}");
                return None;
            }
        }
    }
    Some(three)
}

/// Starts the graph. Prints the reason and returns `None` if the kernel lacks AF_XDP.
fn start(three: &Three) -> Option<Running> {
    match Running::with(&three.between, GRAPH, carina_frame::PoolConfig::default()) {
        Ok(running) => Some(running),
        Err(error) if error.contains("Address family not supported") => {
            println!("SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn udp_and_tcp_cross_a_graph_past_the_stack() {
    let Some(three) = plain() else { return };
    let Some(running) = start(&three) else { return };
    udp_goes_both_ways(&three.own, &three.far);
    // The kernel sends neighbour discovery as soon as one end is up; the other end may still be
    // down.
    let down = running.counter("right/drop_down");
    tcp_goes_through(&three.own, &three.far);
    assert_eq!(udp_burst(&three.own, &three.far, 2000), 2000);
    running.has_not_dropped("right", &["no_frame", "length", "no_room", "unsupported"]);
    assert_eq!(running.counter("right/drop_down"), down);
    running.until("left.output -> right.input/packets", |count| count > 2690);
    println!("mode {}", running.counter("left/mode"));
    running.rests();
}

#[test]
fn interface_of_a_program_comes_back() {
    let Some(three) = plain() else { return };
    let Some(running) = start(&three) else { return };
    udp_goes_both_ways(&three.own, &three.far);
    three.between.ip("link set right down");
    running.until("right/is_up", |up| up == 0);
    three.between.ip("link set right up");
    running.until("right/is_up", |up| up == 1);
    udp_goes_both_ways(&three.own, &three.far);
    three.between.ip("link delete right");
    running.until("right/is_up", |up| up == 0);
    three.far.join("far0", &three.between, "right", 1500);
    three.far.ip(&format!("address add {FAR}/24 dev far0"));
    three.far.run(|| {
        Command::new("ethtool")
            .args(["-K", "far0", "tx", "off"])
            .output()
            .unwrap()
    });
    running.until("right/is_up", |up| up == 1);
    three.own.ip("neighbour flush dev own0");
    udp_goes_both_ways(&three.own, &three.far);
}

#[test]
fn program_goes_with_its_graph() {
    let Some(three) = plain() else { return };
    let Some(running) = start(&three) else { return };
    drop(running);
    // The kernel's stack gets its frames again: `between` answers at an address of its own.
    three.between.ip("address add 10.9.0.2/24 dev left");
    let (own, peer) = (
        three
            .own
            .run(|| std::net::UdpSocket::bind((OWN, 0)).unwrap()),
        three
            .between
            .run(|| std::net::UdpSocket::bind((FAR, 0)).unwrap()),
    );
    peer.set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .unwrap();
    own.send_to(b"here", peer.local_addr().unwrap()).unwrap();
    assert_eq!(peer.recv(&mut [0; 10]).unwrap(), 4);
}

#[test]
fn second_program_and_wrong_queue_are_refused() {
    let Some(three) = plain() else { return };
    let Some(_running) = start(&three) else {
        return;
    };
    let refusal = |queue: u32, interface: &str| {
        let graph =
            format!("[apps.a]\nkind = \"af_xdp\"\ninterface = \"{interface}\"\nqueue = {queue}\n");
        let pool = carina_frame::PoolConfig::default();
        Running::with(&three.between, &graph, pool)
            .err()
            .expect("a refusal")
    };
    let error = refusal(0, "left");
    assert!(
        error.contains("another program or socket uses the queue"),
        "{error}"
    );
    let error = refusal(900, "right");
    assert!(
        error.contains("queue 900") && error.contains("check that the interface has this queue"),
        "{error}"
    );
}
