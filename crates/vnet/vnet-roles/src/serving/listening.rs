//! Where a role listens: a TCP socket, or a name in a DIF.

use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use carina_api::{AppName, DifName};
use carina_client::{Error, Node, Registration};
use tokio::sync::mpsc;

use crate::calling::address::Address;
use crate::identity::Identity;
use crate::wire::{TaskFlow, TaskWire};

/// Where a role listens: a bound TCP socket, or a registered name. It accepts nothing yet.
#[derive(Debug)]
pub enum Listening {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A name in a DIF.
    Dif(Named),
}

/// A name in a DIF. It is registered again when the node has restarted.
#[derive(Debug)]
pub struct Named {
    name: AppName,
    dif: DifName,
    node: PathBuf,
    registration: Option<Registration>,
}

/// The connections that arrive at a listener.
#[derive(Debug)]
pub enum Incoming {
    /// Connections over TCP.
    Tcp(tokio::net::TcpListener),
    /// Flows, each with the name of the application that allocated it.
    Dif(mpsc::Receiver<io::Result<(UnixStream, String)>>),
}

impl Listening {
    /// Opens the listener of a party.
    ///
    /// # Errors
    /// The address is in use, or the node has no such DIF.
    pub fn open(address: &Address, party: &Identity) -> io::Result<Listening> {
        match address {
            Address::Tcp(address) => {
                let addresses: Vec<_> = address.to_socket_addrs()?.collect();
                carina_sys::listen_tcp(&addresses).map(Listening::Tcp)
            }
            Address::Dif { dif, node } => {
                let mut named = Named {
                    name: carina_client::name(&party.domain()).map_err(io::Error::other)?,
                    dif: dif.clone(),
                    node: node.clone(),
                    registration: None,
                };
                named.register().map_err(io::Error::other)?;
                Ok(Listening::Dif(named))
            }
        }
    }

    /// Where the listener is reachable, as text: `IP:PORT`, or the name in its DIF.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Listening::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.to_string(),
                Err(error) => error.to_string(),
            },
            Listening::Dif(named) => format!("{} in DIF {}", named.name, named.dif),
        }
    }
}

impl Named {
    fn register(&mut self) -> Result<&mut Registration, Error> {
        let registration = match self.registration.take() {
            Some(registration) => registration,
            None => Node::connect_to(&self.node)?.register(&self.name, Some(&self.dif))?,
        };
        Ok(self.registration.insert(registration))
    }

    /// Accepts flows until the role ends.
    fn accept(mut self, to: &mpsc::Sender<io::Result<(UnixStream, String)>>) {
        while !to.is_closed() {
            let accepted = self.next().transpose();
            let Some(accepted) = accepted else { continue };
            if matches!(&accepted, Err(error) if !matches!(error, Error::Refused(_))) {
                // The node has ended.
                self.registration = None;
            }
            let has_lost = self.registration.is_none();
            if to
                .blocking_send(accepted.map_err(io::Error::other))
                .is_err()
            {
                return;
            }
            if has_lost {
                std::thread::sleep(AGAIN);
            }
        }
    }

    fn next(&mut self) -> Result<Option<(UnixStream, String)>, Error> {
        let registration = self.register()?;
        let Some(request) = registration.next_request_timeout(LOOK)? else {
            return Ok(None);
        };
        let flow = registration.accept_request_socket(&request)?;
        let from = request.remote.to_string();
        Ok(Some((UnixStream::from(flow.socket), from)))
    }
}

impl Incoming {
    /// Begins to accept connections. To be called within a runtime.
    ///
    /// # Errors
    /// The socket is unusable, or the system cannot start a thread.
    pub fn start(listening: Listening) -> io::Result<Incoming> {
        match listening {
            Listening::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(listener).map(Incoming::Tcp)
            }
            Listening::Dif(named) => {
                let (to, from) = mpsc::channel(1);
                let thread = std::thread::Builder::new().name("flows".to_owned());
                thread.spawn(move || named.accept(&to))?;
                Ok(Incoming::Dif(from))
            }
        }
    }

    /// Waits for the next connection. Returns it with the caller's address or application name.
    ///
    /// # Errors
    /// The system has no free descriptors, the caller has gone, or the node has gone; later
    /// connections may still come.
    pub async fn accept(&mut self) -> io::Result<(TaskWire, String)> {
        match self {
            Incoming::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((TaskWire::Tcp(stream), from.to_string()))
            }
            Incoming::Dif(flows) => match flows.recv().await {
                Some(accepted) => {
                    let (socket, from) = accepted?;
                    Ok((TaskWire::Flow(TaskFlow::new(socket)?), from))
                }
                // The thread ends only with the runtime.
                None => std::future::pending().await,
            },
        }
    }
}

/// Time between two checks whether the role has ended.
const LOOK: Duration = Duration::from_millis(200);
/// Time between two attempts to register a name after the node has ended.
const AGAIN: Duration = Duration::from_secs(1);
