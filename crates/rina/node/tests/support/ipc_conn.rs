//! A connection to `ipc.sock`, by which a test requests and answers as an application does.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use carina_api::ipc::{self, FlowRequest, Mode, Reply, Request};
use carina_api::paths::RunDir;
use carina_api::{DifName, ErrorBody, FlowSpec};
use carina_sys::{connect_seqpacket, recv_with_fds, send_with_fds};

use super::{PATIENCE_MS, Taken, app, dif, eventually, readable};

/// A connection to `ipc.sock`.
pub(crate) struct Conn(pub OwnedFd);

impl Conn {
    pub(crate) fn open(dir: &RunDir) -> Self {
        Self(connect_seqpacket(&dir.ipc_sock(), Duration::from_secs(60)).unwrap())
    }

    pub(crate) fn say(&self, request: &Request) {
        self.say_attaching(request, &[]);
    }

    pub(crate) fn say_attaching(&self, request: &Request, fds: &[BorrowedFd<'_>]) {
        send_with_fds(&self.0, &ipc::encode(request).unwrap(), fds).unwrap();
    }

    /// The next message; `None` when the node has closed the connection.
    pub(crate) fn hear(&self) -> Option<(Reply, Vec<OwnedFd>)> {
        assert!(readable(&self.0, PATIENCE_MS), "the node was silent");
        let mut buffer = vec![0; ipc::MESSAGE_BYTES_MAX];
        let datagram = recv_with_fds(&self.0, &mut buffer).ok()?;
        (datagram.bytes > 0).then(|| {
            (
                ipc::decode(&buffer[..datagram.bytes]).unwrap(),
                datagram.fds,
            )
        })
    }

    pub(crate) fn error(&self) -> ErrorBody {
        match self.hear() {
            Some((Reply::Error(refusal), _)) => refusal.error,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    pub(crate) fn register(
        &self,
        name: &str,
        in_dif: Option<&str>,
    ) -> Result<Vec<DifName>, ErrorBody> {
        let (name, dif) = (app(name), in_dif.map(dif));
        self.say(&Request::Register {
            version: ipc::VERSION,
            name,
            dif,
            streams: false,
            shared: false,
        });
        match self.hear() {
            Some((Reply::Registered(registered), _)) => Ok(registered.difs),
            Some((Reply::Error(refusal), _)) => Err(refusal.error),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn ask(&self, remote: &str) {
        self.ask_with(remote, None, FlowSpec::reliable(), Mode::Ring);
    }

    pub(crate) fn ask_with(&self, remote: &str, in_dif: Option<&str>, spec: FlowSpec, mode: Mode) {
        self.say(&allocate(remote, in_dif, spec, mode));
    }

    pub(crate) fn flow_request(&self) -> FlowRequest {
        match self.hear() {
            Some((Reply::FlowRequest(request), _)) => request,
            other => panic!("expected a flow request, got {other:?}"),
        }
    }

    /// The flow request that `caller` has made. Fails at once if the request is refused instead.
    pub(crate) fn flow_request_of(&self, caller: &Conn) -> FlowRequest {
        eventually("the request has come, or a refusal", || {
            readable(&self.0, 0) || readable(&caller.0, 0)
        });
        if !readable(&self.0, 0) {
            panic!("refused: {}", caller.error());
        }
        self.flow_request()
    }

    pub(crate) fn accept(&self, request: u32, mode: Mode) {
        self.say(&accepted(request, mode));
    }

    pub(crate) fn deny(&self, request: u32, reason: &str) {
        let (mode, reason) = (Mode::Ring, Some(reason.to_owned()));
        self.say(&Request::Respond {
            request,
            accept: false,
            reason,
            mode,
            membarrier: false,
        });
    }

    pub(crate) fn flow(&self) -> Taken {
        match self.hear() {
            Some((Reply::Flow(flow), fds)) => Taken::new(flow, fds),
            other => panic!("expected a flow, got {other:?}"),
        }
    }
}

/// A request for a flow.
pub(crate) fn allocate(remote: &str, in_dif: Option<&str>, spec: FlowSpec, mode: Mode) -> Request {
    Request::Allocate {
        version: ipc::VERSION,
        local: app("caller"),
        remote: app(remote),
        dif: in_dif.map(dif),
        spec,
        mode,
        membarrier: false,
        ring_bytes: Some(65536),
        filler: 0,
        detached: false,
        closes: false,
    }
}

/// An answer that accepts.
pub(crate) fn accepted(request: u32, mode: Mode) -> Request {
    Request::Respond {
        request,
        accept: true,
        reason: None,
        mode,
        membarrier: false,
    }
}
