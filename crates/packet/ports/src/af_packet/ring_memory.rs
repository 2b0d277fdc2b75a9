//! The memory of packet sockets' rings, shared among all ports of a process.
//!
//! The kernel keeps the whole of a ring in memory, whether frames pass or not. A few ports get
//! large rings, which hold the frames of bursts. The more memory the open ports have, the smaller
//! are the rings of the next port, so that a thousand ports need a few hundred MiB.

use std::sync::atomic::{AtomicUsize, Ordering};

use carina_netdev::Layout;

/// The memory that the rings of one port occupy. Dropping this value releases it for other ports.
#[derive(Debug)]
pub(super) struct RingMemory(usize);

impl RingMemory {
    /// Reserves memory, and returns the layout with rings of this size.
    pub(super) fn reserve(layout: Layout) -> (RingMemory, Layout) {
        let mut sized = layout;
        let bytes = |layout: Layout| layout.rx_bytes + layout.tx_bytes;
        let reserve = |in_use| {
            sized = layout.with_rings(rx_bytes_at(in_use));
            Some(in_use + bytes(sized))
        };
        let order = Ordering::Relaxed;
        // The closure never refuses.
        let _ = IN_USE.fetch_update(order, order, reserve);
        (RingMemory(bytes(sized)), sized)
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        IN_USE.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Size of the receive ring of a port that opens when the rings of other ports occupy `in_use`
/// bytes.
fn rx_bytes_at(in_use: usize) -> usize {
    let found = SIZES.iter().find(|(limit, _)| in_use < *limit);
    found.map_or(SMALLEST, |(_, size)| *size)
}

/// Receive rings by the memory that is in use: each size applies below its limit.
const SIZES: [(usize, usize); 5] = [
    (128 << 20, 4 << 20),
    (160 << 20, 2 << 20),
    (192 << 20, 1 << 20),
    (224 << 20, 512 << 10),
    (256 << 20, 256 << 10),
];
/// Bytes of the receive ring of a port if more memory is in use than all limits in [`SIZES`].
const SMALLEST: usize = 128 << 10;

/// Memory of the rings of all ports of this process, in bytes.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    /// The rings of this many ports that open one after the other, in bytes.
    fn rings(ports: usize, mtu: usize) -> (Vec<usize>, usize) {
        let layout = Layout::for_mtu(mtu);
        let mut in_use = 0;
        let sizes = (0..ports).map(|_| {
            let sized = layout.with_rings(rx_bytes_at(in_use));
            in_use += sized.rx_bytes + sized.tx_bytes;
            sized.rx_bytes
        });
        (sizes.collect(), in_use)
    }

    #[test]
    fn thousand_links_have_a_mebibyte_each_at_most() {
        let (sizes, in_use) = rings(2000, 1500);
        assert!(in_use <= 1000 << 20, "{in_use}");
        assert!(sizes.is_sorted_by(|a, b| a >= b));
        // The ports of ten links have rings for bursts.
        assert!(sizes[..20].iter().all(|size| *size == 4 << 20));
        // A ring that is small still holds a burst of the engine.
        assert_eq!(sizes[1999], 128 << 10);
        let (sizes, _) = rings(2000, 9000);
        assert_eq!(sizes[1999], 32 * 16384);
    }

    #[test]
    fn memory_of_a_closed_port_is_reserved_again() {
        let layout = Layout::for_mtu(1500);
        // Tests of other modules open ports of this process at the same time, but not this many.
        let many: Vec<_> = (0..200).map(|_| RingMemory::reserve(layout)).collect();
        let last = many.last().unwrap().1;
        assert_eq!((last.rx_bytes, last.tx_bytes), (128 << 10, 64 << 10));
        drop(many);
        assert!(RingMemory::reserve(layout).1.rx_bytes > last.rx_bytes);
    }
}
