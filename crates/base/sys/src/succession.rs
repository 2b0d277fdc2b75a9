//! Resources that only one process has at a time: locks, by flock(2), and listening addresses.
//!
//! A process keeps its locks and addresses until it has ended completely. A process that is started
//! in its place may find them taken for a moment. It waits for [`SUCCESSION`] before it reports
//! that another process has them.

use std::fs::{File, TryLockError};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Takes the exclusive lock of a file, which lasts as long as the file is open. Waits at most
/// `patience`. Returns whether it got the lock.
///
/// # Errors
/// The kernel refuses.
pub fn lock_file(file: &File, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOOK);
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Listens on the first of these addresses that is available, and waits at most [`SUCCESSION`] for
/// one.
///
/// # Errors
/// Another process listens there, or the system refuses.
pub fn listen_tcp(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let deadline = Instant::now() + SUCCESSION;
    loop {
        match TcpListener::bind(addresses) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(LOOK);
            }
            bound => return bound,
        }
    }
}

/// How long a process waits for an earlier process, which is ending, to free a lock or an address.
pub const SUCCESSION: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_one_that_ends_is_waited_for() {
        let name = format!("carina-succession-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let (old, new) = (File::create(&path).unwrap(), File::create(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(lock_file(&old, Duration::ZERO).unwrap());
        assert!(!lock_file(&new, Duration::from_millis(20)).unwrap());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lock_file(&new, Duration::from_secs(60)).unwrap());
            drop(old);
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn address_of_one_that_ends_is_waited_for() {
        let old = listen_tcp(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = old.local_addr().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| listen_tcp(&[address]));
            drop(old);
            assert_eq!(
                waits.join().unwrap().unwrap().local_addr().unwrap(),
                address
            );
        });
    }
}
