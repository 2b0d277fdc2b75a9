//! Frames that are built byte by byte.

/// `02:00:00:00:00:N`.
pub(crate) fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

/// A UDP frame between hosts 10.0.0.N, without checksums. `ends` are host number and port of source
/// and destination; `size` is the length of the frame in bytes.
pub(crate) fn udp(from: [u8; 6], to: [u8; 6], ends: [(u8, u16); 2], size: usize) -> Vec<u8> {
    assert!(size >= 42);
    let mut frame = [to, from].concat();
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((size as u16 - 14).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    for (host, _) in ends {
        frame.extend([10, 0, 0, host]);
    }
    for (_, port) in ends {
        frame.extend(port.to_be_bytes());
    }
    frame.extend((size as u16 - 34).to_be_bytes());
    frame.resize(size, 0);
    frame
}

/// The frame with a VLAN tag.
pub(crate) fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let [high, low] = vlan.to_be_bytes();
    [&frame[..12], &[0x81, 0, high, low], &frame[12..]].concat()
}
