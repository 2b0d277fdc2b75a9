//! Virtqueues whose other end is the fuzzer.

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
