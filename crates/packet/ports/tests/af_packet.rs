//! A graph in one network namespace forwards between two others, through `af_packet`.

use carina_frame::PoolConfig;

use crate::room::Room;
use crate::running::Running;
use crate::traffic::{FAR, OWN, tcp_goes_through, udp_burst, udp_goes_both_ways};

/// Three namespaces: `own` and `far` each have an IP address; `between` has the other ends of their
/// veth pairs.
pub(crate) struct Three {
    pub own: Room,
    pub between: Room,
    pub far: Room,
}

impl Three {
    /// Makes the namespaces. Prints the reason and returns `None` if that is not allowed.
    pub(crate) fn new() -> Option<Three> {
        let three = Three {
            own: Room::new()?,
            between: Room::new()?,
            far: Room::new()?,
        };
        three.own.join("own0", &three.between, "left", 1500);
        three.far.join("far0", &three.between, "right", 1500);
        three.own.ip(&format!("address add {OWN}/24 dev own0"));
        three.far.ip(&format!("address add {FAR}/24 dev far0"));
        Some(three)
    }
}

fn wire(options: &str) -> String {
    format!(
        "links = [\"left.output -> right.input\", \"right.output -> left.input\"]\n\
         [apps.left]\nkind = \"af_packet\"\ninterface = \"left\"\n{options}\n\
         [apps.right]\nkind = \"af_packet\"\ninterface = \"right\"\n{options}\n"
    )
}

#[test]
fn udp_and_tcp_cross_a_graph_that_makes_frames_plain() {
    let Some(three) = Three::new() else { return };
    let running = Running::new(&three.between, &wire(""));
    udp_goes_both_ways(&three.own, &three.far);
    // The kernel sends neighbour discovery as soon as one end is up; the other end may still be
    // down.
    let down = running.counter("right/drop_down");
    tcp_goes_through(&three.own, &three.far);
    running.has_not_dropped(
        "right",
        &["unsupported", "cut", "length", "no_frame", "missed"],
    );
    assert_eq!(running.counter("right/drop_down"), down);
    // A megabyte of TCP, in frames of an MTU of 1500.
    running.until("left.output -> right.input/packets", |count| count > 690);
}

#[test]
fn offloads_go_through_a_graph_whose_frames_are_long() {
    let Some(three) = Three::new() else { return };
    let pool = PoolConfig {
        frames: 2048,
        frame_bytes: 66_000,
    };
    let running = Running::with(&three.between, &wire("offload = true"), pool).unwrap();
    udp_goes_both_ways(&three.own, &three.far);
    tcp_goes_through(&three.own, &three.far);
    assert_eq!(running.counter("right/drop_unsupported"), 0);
}

#[test]
fn bursts_arrive_whole_and_idle_graphs_rest() {
    let Some(three) = Three::new() else { return };
    let running = Running::new(&three.between, &wire(""));
    assert_eq!(udp_burst(&three.own, &three.far, 2000), 2000);
    running.rests();
}

#[test]
fn tags_that_the_kernel_took_out_are_in_the_frames() {
    let Some(three) = Three::new() else { return };
    three.own.ip("address flush dev own0");
    let tagging = |inside: &str, outside: &str| {
        format!(
            "links = [\"in.output -> tag.input\", \"tag.output -> out.input\", \
             \"out.output -> untag.input\", \"untag.output -> in.input\"]\n\
             [apps.in]\n{inside}\n[apps.out]\nkind = \"af_packet\"\ninterface = \"{outside}\"\n\
             [apps.tag]\nkind = \"vlan_tag\"\nvlan = 5\n\
             [apps.untag]\nkind = \"vlan_untag\"\nvlan = 5\n"
        )
    };
    let inside = "kind = \"tap\"\nname = \"tap0\"\nmtu = 1500";
    let _own = Running::new(&three.own, &tagging(inside, "own0"));
    three.own.ip(&format!("address add {OWN}/24 dev tap0"));
    let inside = "kind = \"af_packet\"\ninterface = \"right\"";
    let running = Running::new(&three.between, &tagging(inside, "left"));
    udp_goes_both_ways(&three.own, &three.far);
    tcp_goes_through(&three.own, &three.far);
    running.until("untag.output -> in.input/packets", |count| count > 690);
    // If the tags were lost, the frames would count as of another VLAN.
    assert_eq!(running.counter("untag/drop_other_vlan"), 0);
}

#[test]
fn interface_that_goes_and_comes_back_is_taken_up_again() {
    let Some(three) = Three::new() else { return };
    let running = Running::new(&three.between, &wire(""));
    udp_goes_both_ways(&three.own, &three.far);
    three.between.ip("link set right down");
    running.until("right/is_up", |up| up == 0);
    let socket = three
        .own
        .run(|| std::net::UdpSocket::bind((OWN, 0)).unwrap());
    socket.send_to(b"lost", (FAR, 9)).unwrap();
    running.until("right/drop_down", |lost| lost > 0);
    three.between.ip("link set right up");
    running.until("right/is_up", |up| up == 1);
    udp_goes_both_ways(&three.own, &three.far);
    // Replace the interface by another one of the same name.
    three.between.ip("link delete right");
    running.until("right/is_up", |up| up == 0);
    three.far.join("far0", &three.between, "right", 1500);
    three.far.ip(&format!("address add {FAR}/24 dev far0"));
    running.until("right/is_up", |up| up == 1);
    // The new interface has another MAC address.
    three.own.ip("neighbour flush dev own0");
    udp_goes_both_ways(&three.own, &three.far);
}

#[test]
fn frames_that_no_interface_sends_are_counted() {
    let Some(three) = Three::new() else { return };
    three.between.ip("link set right mtu 600");
    let graph = "links = [\"source.output -> right.input\"]\n\
                 [apps.source]\nkind = \"source\"\nsize = 1000\ncount = 5\n\
                 [apps.right]\nkind = \"af_packet\"\ninterface = \"right\"\n";
    let running = Running::new(&three.between, graph);
    running.until("right/drop_length", |count| count == 5);
}
