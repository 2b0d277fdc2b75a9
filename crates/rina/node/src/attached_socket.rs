//! Checks the socket that an application attaches to a request in stream mode, to use it as its end
//! of the flow.

use std::fmt::Display;
use std::os::fd::OwnedFd;

use carina_api::ipc::{ATTACHED_FDS_MAX, Mode};
use carina_api::{ErrorBody, ErrorCode, FlowSpec};
use carina_dataplane::StreamSocket;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_protocol, socket_type};
use rustix::net::{AddressFamily, SocketType, getpeername, ipproto};

/// Returns the socket that came with a request in `mode`; `None` if no descriptor came. A request
/// that does not ask for a flow has no mode. On an error the descriptors are closed.
///
/// # Errors
/// [`ErrorCode::BadRequest`]: there is more than one descriptor, or `mode` is not
/// [`Mode::Stream`], or the descriptor is not a connected stream socket.
pub(crate) fn attached_socket(
    mode: Option<Mode>,
    mut fds: Vec<OwnedFd>,
) -> Result<Option<StreamSocket>, ErrorBody> {
    let count = fds.len();
    let Some(fd) = fds.pop() else {
        return Ok(None);
    };
    // The descriptors become `StreamSocket`s before any check, so that closing them does not block.
    let fds: Vec<StreamSocket> = fds.into_iter().map(StreamSocket::new).collect();
    let socket = StreamSocket::new(fd);
    match mode {
        Some(Mode::Stream) if fds.is_empty() => {}
        Some(Mode::Stream) => {
            return Err(refused(format!(
                "a request in mode stream attaches {count} descriptors; at most \
                 {ATTACHED_FDS_MAX} is allowed"
            )));
        }
        Some(mode) => {
            return Err(refused(format!(
                "a request in mode {mode} attaches {count} descriptors; only a request in mode \
                 stream may attach one"
            )));
        }
        None => {
            return Err(refused(format!(
                "a request for something other than a flow attaches {count} descriptors; only a \
                 flow request may attach one"
            )));
        }
    }
    check(&socket)
        .map_err(|what| refused(format!("the attached descriptor {what}; {WHAT_IS_RIGHT}")))?;
    Ok(Some(socket))
}

/// Checks that a flow with this specification can carry a byte stream. Other modes accept any
/// specification.
///
/// # Errors
/// [`ErrorCode::BadRequest`], which gives the values of the fields and the right values.
pub(crate) fn stream_spec_checked(mode: Mode, spec: &FlowSpec) -> Result<(), ErrorBody> {
    if mode != Mode::Stream || (spec.max_sdu_gap == 0 && spec.max_loss == 0 && spec.in_order) {
        return Ok(());
    }
    Err(refused(format!(
        "mode stream needs a flow that loses and reorders nothing, but this request has \
         max_sdu_gap {}, max_loss {}, in_order {}; they must be 0, 0 and true",
        spec.max_sdu_gap, spec.max_loss, spec.in_order
    )))
}

fn check(socket: &StreamSocket) -> Result<(), String> {
    let kind = socket_type(socket).map_err(|_| "is not a socket".to_owned())?;
    if kind != SocketType::STREAM {
        let kind = match kind {
            SocketType::DGRAM => "SOCK_DGRAM".to_owned(),
            SocketType::SEQPACKET => "SOCK_SEQPACKET".to_owned(),
            SocketType::RAW => "SOCK_RAW".to_owned(),
            other => format!("type {}", other.as_raw()),
        };
        return Err(format!("is a socket of {kind}"));
    }
    let domain = socket_domain(socket).map_err(unknown)?;
    let protocol = socket_protocol(socket).map_err(unknown)?;
    match domain {
        AddressFamily::UNIX | AddressFamily::VSOCK => {}
        AddressFamily::INET | AddressFamily::INET6
            if matches!(protocol, Some(ipproto::TCP | ipproto::MPTCP)) => {}
        AddressFamily::INET | AddressFamily::INET6 => {
            let number = protocol.map_or(0, |protocol| protocol.as_raw().get());
            return Err(format!("is a socket of IP protocol {number}"));
        }
        other => return Err(format!("is a socket of address family {}", other.as_raw())),
    }
    if socket_acceptconn(socket).map_err(unknown)? {
        return Err("is a listening socket".to_owned());
    }
    getpeername(socket).map_err(|_| "is a socket without a connection".to_owned())?;
    Ok(())
}

fn unknown(error: impl Display) -> String {
    format!("cannot be examined: {error}")
}

fn refused(what: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, what)
}

const WHAT_IS_RIGHT: &str = "it must be a connected stream socket (Unix, TCP or vsock)";
