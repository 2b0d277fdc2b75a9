//! What pretends to be QEMU.

use std::io::Write;
use std::os::unix::net::UnixStream;

use carina_vmpi::ll::ivshmem::HostPort;

/// The ivshmem server against a client that follows a script: each byte connects, hangs up, lets
/// the port work, or is sent. Whatever it does, the next client is served.
pub fn ivshmem_server(data: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut port = HostPort::open(dir.path(), "fuzz", 64 * 1024).expect("a port");
    let mut clients: Vec<UnixStream> = Vec::new();
    let mut now_ns = 0;
    for &byte in data.iter().take(256) {
        match byte % 8 {
            0 | 1 => clients.extend(UnixStream::connect(port.listen_socket()).ok()),
            2 => drop(clients.pop()),
            3 | 4 => port.on_readable(),
            5 => {
                now_ns += 100_000_000;
                port.on_tick(now_ns);
            }
            _ => {
                for client in &mut clients {
                    // A client that was cut off takes no bytes.
                    let _ = client.write_all(&[byte; 8]);
                }
            }
        }
        if clients.len() > 8 {
            clients.clear();
        }
    }
    clients.clear();
    for _ in 0..16 {
        port.on_readable();
    }
    assert_eq!(port.region_bytes(), 64 * 1024);
    assert!(
        UnixStream::connect(port.listen_socket()).is_ok(),
        "the port still listens"
    );
    port.destroy();
}
