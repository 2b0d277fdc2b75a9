//! The IP addresses of a running guest's cards.

use super::Running;
use crate::error::Result;
use crate::network::mac_text;

impl Running {
    /// Gives the card with this MAC address an IP address such as `10.77.1.2/24`. The card then
    /// answers ARP for that address only, because several cards may share one bridge.
    ///
    /// # Errors
    ///
    /// There is no such card, or the guest does not answer.
    pub fn set_address(&self, mac: [u8; 6], address: &str) -> Result<()> {
        let mac = mac_text(mac);
        self.must_run(&format!(
            "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore; \
             echo 2 >/proc/sys/net/ipv4/conf/all/arp_announce; ip link set dev lo up; \
             for i in /sys/class/net/*; do \
             if [ \"$(cat $i/address)\" = {mac} ]; then n=${{i##*/}}; \
             ip addr flush dev $n; ip addr add {address} dev $n; ip link set dev $n up; exit 0; \
             fi; done; echo no network interface here has the address {mac} >&2; exit 1"
        ))
        .map(drop)
    }
}
