//! TCP streams between network namespaces, and the rates at which they arrive.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use carina_namespaces::namespace_file;
use carina_sys::NetworkNamespace;

use crate::waiting::LIMIT;

/// Listens at a port of an address in a namespace.
pub(crate) fn listen(namespace: &str, address: IpAddr) -> TcpListener {
    let namespace = NetworkNamespace::open(&namespace_file(namespace)).unwrap();
    namespace
        .within(|| TcpListener::bind((address, 0)).unwrap())
        .unwrap()
}

/// Connects from a namespace to a listener. Returns both ends, which work in any namespace.
pub(crate) fn connect(namespace: &str, listener: &TcpListener) -> [TcpStream; 2] {
    let to = listener.local_addr().unwrap();
    let namespace = NetworkNamespace::open(&namespace_file(namespace)).unwrap();
    let near = namespace.within(|| dial(to)).unwrap();
    [near, listener.accept().unwrap().0]
}

/// Connects from the namespace of this thread, as soon as the other end can be reached.
pub(crate) fn dial(to: SocketAddr) -> TcpStream {
    let deadline = Instant::now() + LIMIT;
    loop {
        match TcpStream::connect_timeout(&to, Duration::from_secs(5)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{to}: {error}"),
        }
    }
}

/// Sends a stream for some seconds. Returns the rate at which its bytes arrive, in bits a second.
pub(crate) fn stream(sender: &TcpStream, receiver: &TcpStream) -> f64 {
    let (mut sender, mut receiver) = (sender, receiver);
    receiver.set_read_timeout(Some(LIMIT)).unwrap();
    sender.set_write_timeout(Some(LIMIT)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (bytes, end) = (vec![7; 64 << 10], Instant::now() + TIME);
            while Instant::now() < end {
                sender.write_all(&bytes).unwrap();
            }
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut buffer = vec![0; 64 << 10];
        let mut read = || loop {
            match receiver.read(&mut buffer) {
                // A read with a time limit is not restarted after a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.unwrap(),
            }
        };
        let mut bytes = read();
        let begin = Instant::now();
        loop {
            match read() {
                0 => break bytes as f64 * 8.0 / begin.elapsed().as_secs_f64(),
                more => bytes += more,
            }
        }
    })
}

const TIME: Duration = Duration::from_secs(4);
