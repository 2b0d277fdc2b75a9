//! Tunnels with an app at one end and the kernel's own tunnel interface at the other.
//!
//! A kernel may lack `vxlan`, `gre`, `ipip` or `l2tp`; the test then prints which one.

use crate::room::Room;
use crate::running::Running;
use crate::traffic::{FAR, OWN, tcp_goes_through, udp_goes_both_ways};

/// The tables and addresses of the app's end, and the arguments of `ip` for the kernel's end.
struct Ends {
    app: String,
    graph: [&'static str; 2],
    kernel: String,
}

fn vxlan(ends: [&'static str; 2]) -> Ends {
    let [local, remote] = ends;
    Ends {
        app: "kind = \"vxlan\"\nvni = 70000".to_owned(),
        graph: ends,
        kernel: format!("vxlan id 70000 local {remote} remote {local} dstport 4789 dev far0"),
    }
}

fn gre(ends: [&'static str; 2]) -> Ends {
    let [local, remote] = ends;
    Ends {
        app: "kind = \"gre\"\nkey = 5".to_owned(),
        graph: ends,
        kernel: format!("gretap local {remote} remote {local} key 5 nopmtudisc"),
    }
}

const ENDS4: [&str; 2] = ["10.8.0.1", "10.8.0.2"];
const ENDS6: [&str; 2] = ["fd08::1", "fd08::2"];

/// Whether the kernel has this kind of interface; tries it in a temporary namespace.
fn kernel_has(kind: &str) -> bool {
    let Some(room) = Room::new() else {
        return false;
    };
    let words = format!("link add probe type {kind}");
    let has = room.run(move || {
        let words = words.split_whitespace();
        let output = std::process::Command::new("ip").args(words).output();
        output.is_ok_and(|output| output.status.success())
    });
    if !has {
        println!("SKIP: this kernel has no interfaces of type {kind}: nothing was compared");
    }
    has
}

/// Connects `own` through a graph, with the app's end of the tunnel, to `far`, which has the
/// kernel's end.
fn traffic_crosses(ends: &Ends) {
    let rooms = (Room::new(), Room::new(), Room::new());
    let (Some(own), Some(between), Some(far)) = rooms else {
        return;
    };
    own.join("own0", &between, "left", 1500);
    // The MTU leaves room for the tunnel's headers around packets of 1500 bytes.
    far.join("far0", &between, "right", 1600);
    own.ip(&format!("address add {OWN}/24 dev own0"));
    let [local, remote] = ends.graph;
    let bits = if local.contains(':') {
        "64 nodad"
    } else {
        "24"
    };
    far.ip("link set far0 address 02:00:00:00:00:02");
    far.ip(&format!("address add {remote}/{bits} dev far0"));
    far.ip(&format!(
        "neighbour add {local} lladdr 02:00:00:00:00:01 dev far0"
    ));
    far.ip(&format!("link add tunnel0 mtu 1500 type {}", ends.kernel));
    // A packet socket cannot describe pending segmentation of an encapsulated packet, so the kernel
    // must not leave any.
    far.ip("link set tunnel0 gso_max_segs 1 up");
    far.ip(&format!("address add {FAR}/24 dev tunnel0"));
    let app = &ends.app;
    let graph = format!(
        "links = [\"left.output -> tunnel.north\", \"tunnel.north -> left.input\", \
         \"right.output -> tunnel.south\", \"tunnel.south -> right.input\"]\n\
         [apps.left]\nkind = \"af_packet\"\ninterface = \"left\"\n\
         [apps.right]\nkind = \"af_packet\"\ninterface = \"right\"\n\
         [apps.tunnel]\n{app}\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
         mac = \"02:00:00:00:00:01\"\nnext_mac = \"02:00:00:00:00:02\"\n"
    );
    let running = Running::new(&between, &graph);
    udp_goes_both_ways(&own, &far);
    tcp_goes_through(&own, &far);
    // A megabyte of TCP, in frames of an MTU of 1500.
    running.until("tunnel.south -> right.input/packets", |count| count > 690);
    for reason in ["length", "checksum", "key", "no_room"] {
        let count = running.counter(&format!("tunnel/drop_{reason}"));
        assert_eq!(count, 0, "{reason}");
    }
}

#[test]
fn vxlan_reaches_the_kernels_end_over_ipv4() {
    if kernel_has("vxlan id 1 dstport 4789") {
        traffic_crosses(&vxlan(ENDS4));
    }
}

#[test]
fn vxlan_reaches_the_kernels_end_over_ipv6() {
    if kernel_has("vxlan id 1 dstport 4789") {
        traffic_crosses(&vxlan(ENDS6));
    }
}

#[test]
fn gre_with_a_key_reaches_the_kernels_end() {
    if kernel_has("gretap local 10.8.0.1 remote 10.8.0.2") {
        traffic_crosses(&gre(ENDS4));
    }
}
