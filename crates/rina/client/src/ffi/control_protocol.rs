//! Messages between a control descriptor and its control service.
//!
//! The program that holds the control descriptor is the *holder*. The *control service* is a thread
//! of this library, in the same process or in its parent. Messages are lines of text; names contain
//! no line breaks.
//!
//! ```text
//! holder -> service   register|unregister, name, dif  + a socket for the answer
//!                     accept, handle                  + a socket for the answer
//!                     refuse, handle, response        + a socket for the answer
//! service -> answer   errno, 0 when done              + the flow, after accept
//! service -> holder   handle, remote name, specification as JSON
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carina_api::ipc::REASON_BYTES_MAX;
use carina_api::{AppName, DifName, FlowSpec};
use carina_sys::{recv_with_fds, send_with_fds, socketpair_seqpacket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// A call of the holder of a control descriptor to the control service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Register { name: AppName, dif: Option<DifName> },
    Unregister { name: AppName, dif: Option<DifName> },
    Accept { handle: u32 },
    Refuse { handle: u32, response: i32 },
}

/// A flow request, as the control service reports it to the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestNotice {
    pub(super) handle: u32,
    pub(super) remote: AppName,
    pub(super) spec: FlowSpec,
}

impl Call {
    fn encode(&self) -> String {
        let dif = |dif: &Option<DifName>| dif.as_ref().map_or(String::new(), DifName::to_string);
        match self {
            Call::Register { name, dif: of } => format!("register\n{name}\n{}", dif(of)),
            Call::Unregister { name, dif: of } => format!("unregister\n{name}\n{}", dif(of)),
            Call::Accept { handle } => format!("accept\n{handle}"),
            Call::Refuse { handle, response } => format!("refuse\n{handle}\n{response}"),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Call> {
        let mut lines = str::from_utf8(bytes).ok()?.split('\n');
        let (operation, first) = (lines.next()?, lines.next()?);
        let name = || first.parse().ok();
        let dif = |line: Option<&str>| match line? {
            "" => Some(None),
            dif => dif.parse().ok().map(Some),
        };
        Some(match operation {
            "register" => Call::Register {
                name: name()?,
                dif: dif(lines.next())?,
            },
            "unregister" => Call::Unregister {
                name: name()?,
                dif: dif(lines.next())?,
            },
            "accept" => Call::Accept {
                handle: first.parse().ok()?,
            },
            "refuse" => Call::Refuse {
                handle: first.parse().ok()?,
                response: lines.next()?.parse().ok()?,
            },
            _ => return None,
        })
    }
}

impl RequestNotice {
    pub(super) fn encode(&self) -> String {
        let spec = serde_json::to_string(&self.spec).expect("plain numbers are always JSON");
        format!("{}\n{}\n{spec}", self.handle, self.remote)
    }

    fn decode(bytes: &[u8]) -> Option<RequestNotice> {
        let mut lines = str::from_utf8(bytes).ok()?.split('\n');
        Some(RequestNotice {
            handle: lines.next()?.parse().ok()?,
            remote: lines.next()?.parse().ok()?,
            spec: serde_json::from_str(lines.next()?).ok()?,
        })
    }
}

/// Sends a call and returns the socket on which its answer will arrive.
pub(super) fn start_call(control: BorrowedFd<'_>, call: &Call) -> Result<OwnedFd, Errno> {
    let (mine, theirs) = socketpair_seqpacket().map_err(errno)?;
    send_with_fds(control, call.encode().as_bytes(), &[theirs.as_fd()]).map_err(errno)?;
    Ok(mine)
}

/// Sends a call and waits for its answer. The answer to `accept` includes the flow's socket.
pub(super) fn call(control: BorrowedFd<'_>, call: &Call) -> Result<Option<OwnedFd>, Errno> {
    let answer = start_call(control, call)?;
    loop {
        match receive_answer(answer.as_fd()) {
            // A signal came, but the control service already processes the call. Returning now
            // would lose the flow.
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Waits for the answer to a call, and returns the socket that it includes, if any.
pub(super) fn receive_answer(answer: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    wait_readable(answer)?;
    let mut buffer = [0; 16];
    let datagram = recv_with_fds(answer, &mut buffer).map_err(errno)?;
    let text = str::from_utf8(&buffer[..datagram.bytes]).unwrap_or("");
    match text.parse() {
        Ok(0) => Ok(datagram.fds.into_iter().next()),
        Ok(code) => Err(Errno::from_raw_os_error(code)),
        Err(_) => Err(Errno::CONNRESET),
    }
}

/// Sends the answer to a call.
pub(super) fn answer(to: &OwnedFd, result: Result<Option<OwnedFd>, Errno>) {
    let (code, flow) = match result {
        Ok(flow) => (0, flow),
        Err(error) => (error.raw_os_error(), None),
    };
    let fds: Vec<_> = flow.iter().map(AsFd::as_fd).collect();
    // If the caller has closed its socket, the flow is closed here.
    let _ = send_with_fds(to, code.to_string().as_bytes(), &fds);
}

/// Reads the next flow request from the control descriptor. It waits unless the descriptor is
/// non-blocking.
pub(super) fn next_notice(control: BorrowedFd<'_>) -> Result<RequestNotice, Errno> {
    let mut buffer = [0; 4 * REASON_BYTES_MAX];
    match recv(control, &mut buffer, RecvFlags::empty())? {
        (_, 0) => Err(Errno::CONNRESET),
        (filled, _) => RequestNotice::decode(&buffer[..filled]).ok_or(Errno::PROTO),
    }
}

/// Waits until `fd` is readable. It fails with `EINTR` when a signal arrives first, and with
/// `EAGAIN` when a non-blocking descriptor is not readable.
pub(super) fn wait_readable(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let at_once = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let limit = fcntl_getfl(fd)?
        .contains(OFlags::NONBLOCK)
        .then_some(at_once);
    match poll(&mut fds, limit.as_ref())? {
        0 => Err(Errno::AGAIN),
        _ => Ok(()),
    }
}

pub(super) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(match error.kind() {
        io::ErrorKind::InvalidData => Errno::PROTO,
        _ => Errno::IO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_tokens_survive_the_socket() {
        let name: AppName = "an app/with: odd |names".replace('|', "_").parse().unwrap();
        let calls = [
            Call::Register {
                name: name.clone(),
                dif: Some("d".parse().unwrap()),
            },
            Call::Unregister {
                name: name.clone(),
                dif: None,
            },
            Call::Accept { handle: 7 },
            Call::Refuse {
                handle: u32::MAX,
                response: -3,
            },
        ];
        for call in calls {
            assert_eq!(Call::decode(call.encode().as_bytes()), Some(call));
        }
        let notice = RequestNotice {
            handle: 9,
            remote: name,
            spec: FlowSpec::reliable(),
        };
        assert_eq!(
            RequestNotice::decode(notice.encode().as_bytes()),
            Some(notice)
        );
    }

    #[test]
    fn nonsense_is_no_call() {
        for bytes in [
            &b""[..],
            b"accept",
            b"accept\nx",
            b"refuse\n1",
            b"open\nx",
            &[0xff; 9],
        ] {
            assert_eq!(Call::decode(bytes), None);
        }
    }
}
