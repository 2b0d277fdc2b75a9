//! A node in a directory of its own, and gateways in threads.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_api::AppName;
use carina_api::control::Client;
use carina_client::Node;
use carina_gateway::{Connect, Endpoint, Expose, Gateway, GatewayError, Internet, Proxy};
use carina_node::{Config, NodeHandle};
use carina_sys::EventFd;

/// A node.
pub(crate) struct House {
    directory: tempfile::TempDir,
    pub node: Option<NodeHandle>,
}

impl House {
    pub(crate) fn new(toml: &str) -> House {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::parse(toml, None).unwrap();
        config.node.run_dir = Some(directory.path().join("run"));
        let node = Some(carina_node::Node::spawn(config).unwrap());
        House { directory, node }
    }

    pub(crate) fn client(&self) -> Node {
        Node::connect_to(self.directory.path().join("run/ipc.sock")).unwrap()
    }

    pub(crate) fn control(&self) -> Client {
        Client::new(self.directory.path().join("run/control.sock"))
    }

    pub(crate) fn expose(&self, settings: Expose) -> Running {
        self.try_expose(settings).unwrap()
    }

    pub(crate) fn try_expose(&self, settings: Expose) -> Result<Running, GatewayError> {
        let started = Running::start(self.client(), |gateway| gateway.expose(settings));
        started.map(|(_, running)| running)
    }

    pub(crate) fn internet(&self, settings: Internet) -> Running {
        let started = Running::start(self.client(), |gateway| gateway.internet(settings));
        started.unwrap().1
    }

    /// A connector and where it listens.
    pub(crate) fn connect(&self, settings: Connect) -> (String, Running) {
        listening(Running::start(self.client(), |gateway| {
            gateway.connect(settings)
        }))
    }

    /// A proxy and where it listens.
    pub(crate) fn proxy(&self, settings: Proxy) -> (String, Running) {
        listening(Running::start(self.client(), |gateway| {
            gateway.proxy(settings)
        }))
    }

    /// A path in the directory of the house.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn listening(started: Result<(Endpoint, Running), GatewayError>) -> (String, Running) {
    let (endpoint, running) = started.unwrap();
    let address = match endpoint {
        Endpoint::Tcp(address) | Endpoint::Udp(address) => address,
        Endpoint::Unix(path) => path.display().to_string(),
    };
    (address, running)
}

/// A gateway that runs until it is stopped.
pub(crate) struct Running {
    stop: EventFd,
    thread: Option<JoinHandle<Result<(), GatewayError>>>,
}

impl Running {
    fn start<T: Send + 'static>(
        node: Node,
        make: impl FnOnce(&mut Gateway) -> Result<T, GatewayError> + Send + 'static,
    ) -> Result<(T, Running), GatewayError> {
        let stop = EventFd::new().unwrap();
        let stopped = stop.try_clone().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        // A gateway stays in the thread that made it.
        let thread = std::thread::spawn(move || {
            let mut gateway = Gateway::new(node)?;
            let made = make(&mut gateway);
            let is_made = made.is_ok();
            tell.send(made).unwrap();
            if is_made {
                gateway.run(stopped)
            } else {
                Ok(())
            }
        });
        let thread = Some(thread);
        told.recv()
            .unwrap()
            .map(|value| (value, Running { stop, thread }))
    }

    /// Stops the gateway, which must end without an error.
    pub(crate) fn stop(mut self) {
        self.end().unwrap();
    }

    /// How the gateway ended by itself.
    pub(crate) fn ended(mut self) -> GatewayError {
        self.thread.take().unwrap().join().unwrap().unwrap_err()
    }

    fn end(&mut self) -> Result<(), GatewayError> {
        self.stop.signal();
        self.thread
            .take()
            .map_or(Ok(()), |thread| thread.join().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

pub(crate) fn app(text: &str) -> AppName {
    AppName::new(text).unwrap()
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < patience, "not within two minutes: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server of TCP that answers each connection in a thread of its own.
pub(crate) fn tcp_server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        while let Ok((connection, _)) = listener.accept() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(connection));
        }
    });
    address
}

/// Reads to the end and sends it all back.
pub(crate) fn echo(mut connection: impl Read + Write) -> Vec<u8> {
    let mut all = Vec::new();
    connection.read_to_end(&mut all).unwrap();
    connection.write_all(&all).unwrap();
    all
}
