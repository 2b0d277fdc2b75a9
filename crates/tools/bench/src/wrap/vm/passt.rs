//! passt, which gives a VM the sockets of its host's user.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use carina_lab::{TestGuest, TestNode};
use carina_namespaces::ChildProcess;

use crate::error::{Attempt, Result};
use crate::wrap::processes::{spawn, until};

/// Gives the namespace what passt needs: an interface with a default route.
pub(super) fn set_up_network(node: &TestNode) -> Result<()> {
    node.ip(&["link", "set", "dev", "lo", "up"])?;
    node.add_bridge(UPLINK)?;
    node.ip(&["addr", "add", UPLINK_ADDRESS, "dev", UPLINK])?;
    Ok(node.ip(&["route", "add", "default", "via", UPLINK_GATEWAY])?)
}

/// Starts passt, and waits until its socket exists. `addresses` are the guest's own address and the
/// address at which the guest reaches the host's loopback interface.
pub(super) fn start(node: &TestNode, addresses: [String; 2]) -> Result<ChildProcess> {
    let directory = node.path().join(DIRECTORY);
    std::fs::create_dir(&directory).attempt("making a directory for passt")?;
    // passt gives up the rights of root.
    std::fs::set_permissions(&directory, Permissions::from_mode(0o777))
        .attempt("letting passt write into its directory")?;
    let socket = socket(node);
    let [address, gateway] = &addresses;
    let mut command = Command::new("passt");
    // It ends when QEMU has closed the socket.
    command.args(["--foreground", "--one-off", "--ipv4-only", "--socket"]);
    command.arg(&socket);
    command.args(["--interface", UPLINK, "--mtu", MTU, "--netmask", "24"]);
    command.args(["--address", address, "--gateway", gateway]);
    let mut passt = spawn(command, node.path(), "passt")?;
    let exists = || socket.exists();
    until(
        &mut passt,
        node.path(),
        "passt",
        "it makes no socket",
        exists,
    )?;
    Ok(passt)
}

/// The socket to which QEMU connects.
pub(super) fn socket(node: &TestNode) -> PathBuf {
    node.path().join(DIRECTORY).join("socket")
}

/// Sets the MTU that passt offers by DHCP, on the card with this MAC address.
pub(super) fn set_mtu(guest: &TestGuest, mac: [u8; 6]) -> Result<()> {
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let script = format!(
        "for card in /sys/class/net/*; do [ \"$(cat $card/address)\" != {mac} ] || \
         ip link set dev ${{card##*/}} mtu {MTU}; done"
    );
    guest.run(&script)?;
    Ok(())
}

const DIRECTORY: &str = "passt";

/// The MTU that passt recommends, the largest.
const MTU: &str = "65520";

/// The interface from which passt reads that the host is connected.
const UPLINK: &str = "br-wrapvm";
const UPLINK_ADDRESS: &str = "10.79.9.1/24";
const UPLINK_GATEWAY: &str = "10.79.9.2";
