//! Virtqueues and rings of network cards whose other end is the fuzzer.

/// A device half, of either layout, against a driver that follows the script.
pub fn vring_device(data: &[u8]) {
    let _ = carina_vring::fuzz::device(data);
}

/// A driver half, of either layout, against a device that follows the script.
pub fn vring_driver(data: &[u8]) {
    let _ = carina_vring::fuzz::driver(data);
}

/// A back end of vhost-user against messages and rings of a front end that follows the script.
pub fn vhost_user(data: &[u8]) {
    let _ = carina_vhost_user::fuzz::messages(data);
}

/// Whether all messages of a script are answered, and its rings are used.
pub fn reads_vhost_user(data: &[u8]) -> bool {
    let played = carina_vhost_user::fuzz::messages(data);
    !played.is_refused && !played.is_faulty && played.chains > 0
}

/// Rings of a network card whose device follows the script.
pub fn nic_rings(data: &[u8]) {
    let _ = carina_nic::fuzz::rings(data);
}

/// Whether frames of a script were received.
pub fn receives_nic_rings(data: &[u8]) -> bool {
    carina_nic::fuzz::rings(data) > 0
}

/// The configuration space of a device of PCI, and the record of one that was taken.
pub fn nic_device(data: &[u8]) {
    let _ = carina_nic::fuzz::capabilities(data);
    let _ = carina_nic::fuzz::record(data);
}

/// Whether there is a virtio device, or a driver in a record.
pub fn reads_nic_device(data: &[u8]) -> bool {
    carina_nic::fuzz::capabilities(data) || carina_nic::fuzz::record(data)
}
