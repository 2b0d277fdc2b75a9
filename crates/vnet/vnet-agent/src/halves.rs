//! The two directions of a TLS connection, for a thread that reads and another that writes.

use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carina_vnet_host::guest_wire::GuestWire;
use rustls::Connection;

/// A TLS session that both directions use. It is locked only while bytes pass through it, and not
/// while a direction waits for its socket.
#[derive(Clone)]
pub(crate) struct Session {
    connection: Arc<Mutex<Connection>>,
}

/// The direction that is read.
struct Reading<S> {
    session: Session,
    socket: S,
    buffer: Vec<u8>,
    /// Place in the buffer of encrypted bytes that the session has not taken.
    unread: Range<usize>,
}

/// The direction that is written.
struct Writing<S> {
    session: Session,
    socket: S,
    /// Encrypted bytes that are being written.
    buffer: Vec<u8>,
}

type Halves<S> = (Reading<S>, Writing<S>, Session);

impl Session {
    /// Splits a connection after its handshake. `sockets` are two handles of its socket.
    pub(crate) fn split<S>(connection: Connection, sockets: [S; 2]) -> (GuestWire, Session)
    where
        S: Read + Write + Send + 'static,
    {
        let (reading, writing, session) = Session::halves(connection, sockets);
        (GuestWire::new(reading, writing), session)
    }

    fn halves<S>(connection: Connection, [socket, other]: [S; 2]) -> Halves<S> {
        let session = Session {
            connection: Arc::new(Mutex::new(connection)),
        };
        let reading = Reading {
            session: session.clone(),
            socket,
            buffer: vec![0; RECORD],
            unread: 0..0,
        };
        let writing = Writing {
            session: session.clone(),
            socket: other,
            buffer: Vec::new(),
        };
        (reading, writing, session)
    }

    /// Tells the peer over `socket` that nothing follows. Nothing else may write meanwhile.
    pub(crate) fn close(&self, mut socket: impl Write) -> io::Result<()> {
        let mut connection = self.lock();
        connection.send_close_notify();
        let mut bytes = Vec::new();
        drain(&mut connection, &mut bytes)?;
        drop(connection);
        socket.write_all(&bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic while it is locked ends the move that uses it.
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Read> Read for Reading<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut connection = self.session.lock();
            match connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            if self.unread.is_empty() {
                drop(connection);
                let length = self.socket.read(&mut self.buffer)?;
                self.unread = 0..length;
                connection = self.session.lock();
            }
            // The session takes a part, and no more until what it has decrypted was read. No bytes
            // are the end of the connection.
            let taken = connection.read_tls(&mut &self.buffer[self.unread.clone()])?;
            self.unread.start += taken;
            connection.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl<S: Write> Write for Writing<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(BLOCK)];
        let mut connection = self.session.lock();
        let length = connection.writer().write(bytes)?;
        self.buffer.clear();
        drain(&mut connection, &mut self.buffer)?;
        drop(connection);
        self.socket.write_all(&self.buffer)?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Takes the encrypted bytes that a session wants to send.
fn drain(connection: &mut Connection, into: &mut Vec<u8>) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(into)?;
    }
    Ok(())
}

/// Largest number of bytes that are read from the socket at once: a record of TLS.
const RECORD: usize = 16 << 10;
/// Largest number of bytes that are encrypted at once; the session refuses more than it buffers.
const BLOCK: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use carina_vnet_roles::calling::address::Address;
    use carina_vnet_roles::calling::connection::Callee;
    use carina_vnet_roles::identity::{Identity, Role};
    use carina_vnet_roles::keys::{KeyDir, Tls};
    use rustls::ServerConnection;

    use super::*;

    fn server(tls: &Tls, mut stream: TcpStream) -> (Halves<TcpStream>, TcpStream) {
        let mut session = ServerConnection::new(tls.server()).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut stream).unwrap();
        }
        let sockets = [stream.try_clone().unwrap(), stream.try_clone().unwrap()];
        (Session::halves(session.into(), sockets), stream)
    }

    #[test]
    fn both_directions_carry_bytes_at_the_same_time() {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyDir::new(directory.path().join("keys"));
        keys.create_authority().unwrap();
        let [h1, h2] = ["h1", "h2"].map(|name| Identity::new(Role::Agent, name).unwrap());
        let tls = [&h1, &h2].map(|party| {
            keys.issue(party, 1, &keys).unwrap();
            Tls::of(&keys, party).unwrap()
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let callee = Callee {
            party: h2,
            address: Address::Tcp(listener.local_addr().unwrap().to_string()),
            tls: tls[0].clone(),
        };
        let ((far, stream), near) = std::thread::scope(|scope| {
            let far = scope.spawn(|| server(&tls[1], listener.accept().unwrap().0));
            let near = callee.connect().unwrap();
            (far.join().unwrap(), near)
        });
        let near = near.into_stream(Duration::from_secs(60)).unwrap();
        let other = near.sock.duplicate().unwrap();
        let near = Session::halves(near.conn.into(), [near.sock, other]);
        let sent: Vec<u8> = (0..3_000_000_u32)
            .map(|number| (number >> 8) as u8)
            .collect();
        let pass = |writer: &mut dyn Write| {
            writer.write_all(&sent).unwrap();
            writer.flush().unwrap();
        };
        let take = |reader: &mut dyn Read| {
            let mut taken = vec![0; sent.len()];
            reader.read_exact(&mut taken).unwrap();
            assert!(taken == sent, "other bytes have arrived");
        };
        let (mut near_reading, mut near_writing, _near) = near;
        let (mut far_reading, mut far_writing, far) = far;
        std::thread::scope(|scope| {
            scope.spawn(|| pass(&mut near_writing));
            scope.spawn(|| pass(&mut far_writing));
            scope.spawn(|| take(&mut near_reading));
            scope.spawn(|| take(&mut far_reading));
        });
        far.close(stream).unwrap();
        assert_eq!(near_reading.read(&mut [0]).unwrap(), 0);
    }
}
