//! A port that cannot be opened is refused, with an error that says what would be right.

use carina_frame::PoolConfig;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::room::Room;
use crate::running::Running;

fn refusal(room: &Room, app: &str) -> String {
    let graph = format!("[apps.a]\n{app}\n");
    let refused = Running::with(room, &graph, PoolConfig::default());
    refused.err().expect("a refusal")
}

#[test]
fn wrong_names_and_frames_are_refused_with_what_would_be_right() {
    let Some(room) = Room::new() else { return };
    room.ip("link add left mtu 9000 type veth peer name right");
    let error = refusal(&room, "kind = \"af_packet\"\ninterface = \"nope\"");
    assert!(
        error.contains("no network interface \"nope\"; this system has: lo"),
        "{error}"
    );
    let error = refusal(&room, "kind = \"af_packet\"\ninterface = \"left\"");
    assert!(
        error.contains("frames of up to 9018 bytes") && error.contains("--frame-bytes 9018"),
        "{error}"
    );
    let error = refusal(&room, "kind = \"af_packet\"\ninterface = \"lo\"");
    assert!(error.contains("lo is no Ethernet interface"), "{error}");
    let error = refusal(&room, "kind = \"tap\"\nname = \"a/b\"");
    assert!(
        error.contains("\"a/b\": the name of an interface has 1 to 15 bytes"),
        "{error}"
    );
    let error = refusal(&room, "kind = \"tap\"\nname = \"left\"");
    assert!(
        error.contains("an interface of this name exists and is of another kind"),
        "{error}"
    );
    let error = refusal(&room, "kind = \"tun\"\nname = \"t\"\nmtu = 4000");
    assert!(
        error.contains("t has frames of up to 4018 bytes"),
        "{error}"
    );
    let held = Running::new(&room, "[apps.a]\nkind = \"tap\"\nname = \"t\"\n");
    let error = refusal(&room, "kind = \"tap\"\nname = \"t\"");
    assert!(
        error.contains("another process is attached to it"),
        "{error}"
    );
    drop(held);
}

#[test]
fn missing_rights_are_named() {
    let Some(room) = Room::new() else { return };
    room.ip("link add left type veth peer name right");
    room.run(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective
            .remove(CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets).unwrap();
    });
    let error = refusal(&room, "kind = \"af_packet\"\ninterface = \"left\"");
    assert!(error.contains("needs CAP_NET_RAW; run as root"), "{error}");
    let error = refusal(&room, "kind = \"tap\"\nname = \"t\"");
    assert!(
        error.contains("tap device t needs CAP_NET_ADMIN; run as root"),
        "{error}"
    );
}
