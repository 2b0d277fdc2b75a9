//! Carries out one call of a program: decides by the rules, and answers the call.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carina_seccomp::Notification;
use carina_seccomp::filter::Call as SystemCall;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::calls::{AcceptFlags, Call, Descriptors, is_connected, local_address, remote_address};
use crate::mark::Mark;
use crate::options;
use crate::socket_address;
use crate::sockets::{is_tcp, is_udp, set_flags, unbound_address};
use crate::supervisor::caller::{Caller, Rights};
use crate::supervisor::waiting::Parked;
use crate::supervisor::{Supervisor, Warning};

/// How the supervisor ends a call.
enum Answer {
    /// The kernel carries out the call. The supervisor has read nothing that an argument points to.
    Pass,
    /// The call returns this result.
    Result(Result<i64, Errno>),
    /// The call was answered already, or waits until a flow arrives.
    Given,
}

impl<T: Into<i64>> From<Result<T, Errno>> for Answer {
    fn from(result: Result<T, Errno>) -> Answer {
        Answer::Result(result.map(Into::into))
    }
}

const DONE: Answer = Answer::Result(Ok(0));

impl Supervisor {
    /// Carries out a call and answers it.
    pub(super) fn handle(&self, notification: &Notification) {
        let caller = Caller::new(&self.listener, notification);
        let answer = self.outcome(&caller, notification);
        match answer.unwrap_or_else(|error| Answer::Result(Err(error))) {
            // If the kernel refuses the answer, the program has ended or repeats the call.
            Answer::Pass => drop(self.listener.let_pass(notification.id)),
            Answer::Result(result) => caller.answer(result),
            Answer::Given => {}
        }
    }

    fn outcome(&self, caller: &Caller<'_>, call: &Notification) -> Result<Answer, Errno> {
        let Some(kind) = call.call else {
            return Ok(Answer::Pass);
        };
        let socket = match caller.socket() {
            Err(Errno::PERM) => {
                self.warn_once(Warning::Hidden, call.thread);
                return Ok(Answer::Pass);
            }
            socket => socket?,
        };
        let mark = Mark::of(socket.as_fd());
        let arguments = call.arguments;
        match (kind, mark) {
            (_, None) if is_fast_open(call) && is_tcp(socket.as_fd()) => Err(Errno::OPNOTSUPP),
            (SystemCall::Connect | SystemCall::Bind, Some(mark)) if mark.has(Mark::UNTOLD) => {
                mark.without(Mark::UNTOLD).set(socket.as_fd())?;
                if mark.has(Mark::PENDING) {
                    return Err(Errno::INPROGRESS);
                }
                Ok(DONE)
            }
            (SystemCall::Connect, _) => self.connect(caller, call, socket.as_fd(), mark),
            (SystemCall::Bind, _) => self.bind(caller, call, socket.as_fd(), mark),
            (SystemCall::Listen, _) => self.listen(caller, call, socket.as_fd(), mark),
            (_, None) => Ok(Answer::Pass),
            (SystemCall::Accept | SystemCall::Accept4, _) => self.accept(caller, call, socket),
            (kind, Some(mark)) if moves_data(kind) => {
                if !mark.has(Mark::DATAGRAMS) {
                    return Ok(Answer::Pass);
                }
                self.datagram(caller, call, kind, socket)
            }
            (SystemCall::LocalAddress, Some(mark)) => {
                let address = local_address(socket.as_fd(), mark).ok_or(Errno::INVAL)?;
                write_address(caller, call, address)?;
                Ok(DONE)
            }
            (SystemCall::PeerAddress, Some(mark)) => {
                write_address(caller, call, peer(socket.as_fd(), mark)?)?;
                Ok(DONE)
            }
            (SystemCall::Option, Some(mark)) => {
                let [level, name] = [arguments[1], arguments[2]].map(|number| number as i32);
                let value = options::value(socket.as_fd(), mark, level, name)?;
                caller.write_sized(&value, arguments[3], arguments[4], false)?;
                Ok(DONE)
            }
            (SystemCall::SetOption, Some(mark)) => {
                let of = [arguments[1], arguments[2], arguments[4]].map(|number| number as i32);
                options::set(socket.as_fd(), mark, of, || caller.read(arguments[3]))?;
                Ok(DONE)
            }
            (_, Some(_)) => Ok(Answer::Pass),
        }
    }

    /// Sends or receives a datagram on a flow or to a relay.
    fn datagram(
        &self,
        caller: &Caller<'_>,
        call: &Notification,
        kind: SystemCall,
        socket: OwnedFd,
    ) -> Result<Answer, Errno> {
        if sends(kind) {
            let sent = self.send_datagram(caller, call, kind, socket.as_fd())?;
            return Ok(Answer::Result(Ok(sent)));
        }
        match self.receive_datagram(caller, call, kind, socket.as_fd())? {
            Some(received) => Ok(Answer::Result(Ok(received))),
            None => {
                self.waiting.park(*call, socket)?;
                Ok(Answer::Given)
            }
        }
    }

    fn connect(
        &self,
        caller: &Caller<'_>,
        call: &Notification,
        socket: BorrowedFd<'_>,
        mark: Option<Mark>,
    ) -> Result<Answer, Errno> {
        if mark.is_none() && is_udp(socket) {
            return self.connect_udp(caller, call, socket);
        }
        if mark.is_none() && !is_tcp(socket) {
            return Ok(Answer::Pass);
        }
        let bytes = caller.read_address(call.arguments[1], call.arguments[2])?;
        let rights = caller.rights()?;
        if let Some(to) = socket_address::decoded(&bytes) {
            if self.wrap.connects(socket, to) {
                self.check_identity(&rights, call)?;
            }
            if let Call::Done(()) = self.wrap.connect(caller, socket, to)? {
                return Ok(DONE);
            }
        }
        self.check_network(&rights, call)?;
        // The supervisor would look up the path of an AF_UNIX address in its own file system.
        if mark.is_some() {
            return Err(Errno::AFNOSUPPORT);
        }
        Ok(carina_seccomp::connect(socket, &bytes).map(|()| 0).into())
    }

    /// A UDP socket that a rule makes a flow, or one that asks a name server of the system while a
    /// rule has names; any other is connected as it is.
    fn connect_udp(
        &self,
        caller: &Caller<'_>,
        call: &Notification,
        socket: BorrowedFd<'_>,
    ) -> Result<Answer, Errno> {
        let rights = caller.rights()?;
        // Flows, and questions that are not for this resolver, go out of the supervisor's network.
        if rights.network != self.own.network {
            return Ok(Answer::Pass);
        }
        let bytes = caller.read_address(call.arguments[1], call.arguments[2])?;
        let to = socket_address::decoded(&bytes);
        if let Some(to) = to.filter(|to| self.wrap.connects(socket, *to)) {
            self.check_identity(&rights, call)?;
            if let Call::Done(()) = self.wrap.connect(caller, socket, to)? {
                return Ok(DONE);
            }
        }
        let is_server = |to: &SocketAddr| self.wrap.has_names() && self.resolver.is_server(*to);
        let end = to.filter(is_server).map(|to| self.resolver.connect(to));
        let Some(Ok(end)) = end else {
            return Ok(carina_seccomp::connect(socket, &bytes).map(|()| 0).into());
        };
        let flags = rustix::fs::fcntl_getfl(socket)? & OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&end, flags)?;
        caller.replace(socket, end)?;
        Ok(DONE)
    }

    fn bind(
        &self,
        caller: &Caller<'_>,
        call: &Notification,
        socket: BorrowedFd<'_>,
        mark: Option<Mark>,
    ) -> Result<Answer, Errno> {
        if mark.is_some() {
            return Err(Errno::INVAL);
        }
        let rights = caller.rights()?;
        // A relay sends datagrams that are no flows in the supervisor's network.
        let may_be_relayed = is_udp(socket) && rights.network == self.own.network;
        if !is_tcp(socket) && !may_be_relayed {
            return Ok(Answer::Pass);
        }
        let bytes = caller.read_address(call.arguments[1], call.arguments[2])?;
        if let Some(at) = socket_address::decoded(&bytes) {
            if self.wrap.binds(socket, at) {
                self.check_identity(&rights, call)?;
            }
            if let Call::Done(()) = self.wrap.bind(caller, socket, at)? {
                return Ok(DONE);
            }
        }
        self.check_network(&rights, call)?;
        let is_low = |port: u16| port != 0 && port < first_port_for_all();
        let has_right = rights.binds_low_ports && rights.identity.1 == self.own.identity.1;
        if socket_address::port(&bytes).is_some_and(is_low) && !has_right {
            return Err(Errno::ACCESS);
        }
        Ok(carina_seccomp::bind(socket, &bytes).map(|()| 0).into())
    }

    fn listen(
        &self,
        caller: &Caller<'_>,
        call: &Notification,
        socket: BorrowedFd<'_>,
        mark: Option<Mark>,
    ) -> Result<Answer, Errno> {
        if mark.is_none() {
            match unbound_address(socket) {
                Some(address) if self.wrap.binds(socket, address) => {
                    self.check_identity(&caller.rights()?, call)?;
                }
                _ => return Ok(Answer::Pass),
            }
        }
        match self.wrap.listen(caller, socket)? {
            Call::Kernel => Ok(Answer::Pass),
            Call::Done(()) => Ok(DONE),
        }
    }

    fn accept(
        &self,
        caller: &Caller<'_>,
        call: &Notification,
        socket: OwnedFd,
    ) -> Result<Answer, Errno> {
        let answer = self.accept_now(caller, call, socket.as_fd());
        let blocks = || {
            let flags = rustix::fs::fcntl_getfl(&socket);
            flags.is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
        };
        if !matches!(answer, Err(Errno::AGAIN)) || !blocks() {
            return answer;
        }
        self.waiting.park(*call, socket)?;
        Ok(Answer::Given)
    }

    /// Tries again to carry out a call that waits. Returns it if it must wait longer.
    pub(super) fn retry(&self, parked: Parked) -> Option<Parked> {
        let call = &parked.notification;
        let caller = Caller::new(&self.listener, call);
        let socket = parked.socket.as_fd();
        let kind = call.call.filter(|kind| moves_data(*kind));
        let answer = match kind.map(|kind| self.receive_datagram(&caller, call, kind, socket)) {
            Some(Ok(None)) => return Some(parked),
            Some(Ok(Some(received))) => Ok(Answer::Result(Ok(received))),
            Some(Err(error)) => Err(error),
            None => self.accept_now(&caller, call, socket),
        };
        match answer {
            Err(Errno::AGAIN | Errno::INTR) => return Some(parked),
            Err(error) => caller.answer(Err(error)),
            Ok(Answer::Result(result)) => caller.answer(result),
            Ok(Answer::Pass | Answer::Given) => {}
        }
        None
    }

    fn accept_now(
        &self,
        caller: &Caller<'_>,
        call: &Notification,
        socket: BorrowedFd<'_>,
    ) -> Result<Answer, Errno> {
        let flags = accept_flags(call);
        let accepted = match self.waiting.kept(socket) {
            Some(kept) => {
                set_flags(kept.socket.as_fd(), flags)?;
                kept
            }
            None => match self.wrap.accept_now(socket, flags)? {
                Call::Kernel => return Ok(Answer::Pass),
                Call::Done(accepted) => accepted,
            },
        };
        if call.arguments[1] != 0 {
            match write_address(caller, call, accepted.peer) {
                Err(Errno::NOENT) => {
                    self.waiting.keep(socket, accepted);
                    return Ok(Answer::Given);
                }
                written => written?,
            }
        }
        let id = call.id;
        match self
            .listener
            .answer_with(id, accepted.socket.as_fd(), flags.cloexec)
        {
            Ok(()) => Ok(Answer::Given),
            Err(error) => {
                self.waiting.keep(socket, accepted);
                Ok(Answer::Result(Err(error)))
            }
        }
    }

    /// Fails with `EACCES` if the caller has another identity than the supervisor. The node checks
    /// access rules against the supervisor, so the supervisor must not request flows for another
    /// user.
    pub(super) fn check_identity(&self, rights: &Rights, call: &Notification) -> Result<(), Errno> {
        if rights.identity == self.own.identity {
            return Ok(());
        }
        self.warn_once(Warning::OtherUser, call.thread);
        Err(Errno::ACCESS)
    }

    fn check_network(&self, rights: &Rights, call: &Notification) -> Result<(), Errno> {
        if rights.network == self.own.network {
            return Ok(());
        }
        self.warn_once(Warning::OtherNetwork, call.thread);
        Err(Errno::ACCESS)
    }
}

/// Returns the flags of a call of `accept4`; `accept` has none.
fn accept_flags(call: &Notification) -> AcceptFlags {
    let bits = match call.call {
        Some(SystemCall::Accept4) => call.arguments[3] as i32,
        _ => 0,
    };
    AcceptFlags {
        nonblock: bits & libc::SOCK_NONBLOCK != 0,
        cloexec: bits & libc::SOCK_CLOEXEC != 0,
    }
}

fn sends(kind: SystemCall) -> bool {
    use SystemCall::{SendMessage, SendMessages, SendTo};
    matches!(kind, SendTo | SendMessage | SendMessages)
}

fn moves_data(kind: SystemCall) -> bool {
    use SystemCall::{ReceiveFrom, ReceiveMessage, ReceiveMessages};
    sends(kind) || matches!(kind, ReceiveFrom | ReceiveMessage | ReceiveMessages)
}

/// Whether the call sends with `MSG_FASTOPEN`.
fn is_fast_open(call: &Notification) -> bool {
    let flags = match call.call {
        Some(SystemCall::SendTo | SystemCall::SendMessages) => call.arguments[3],
        Some(SystemCall::SendMessage) => call.arguments[2],
        _ => 0,
    };
    flags & libc::MSG_FASTOPEN as u64 != 0
}

/// Returns the address of the remote end of a flow, or `ENOTCONN`.
fn peer(socket: BorrowedFd<'_>, mark: Mark) -> Result<SocketAddr, Errno> {
    let is_connected = is_connected(socket, mark);
    let address = is_connected.then(|| remote_address(socket, mark)).flatten();
    address.ok_or(Errno::NOTCONN)
}

/// Writes a socket address to the memory to which the second and third argument of the call point.
fn write_address(
    caller: &Caller<'_>,
    call: &Notification,
    address: SocketAddr,
) -> Result<(), Errno> {
    let bytes = socket_address::encoded(address);
    caller.write_sized(&bytes, call.arguments[1], call.arguments[2], true)
}

/// Returns the lowest port that needs no `CAP_NET_BIND_SERVICE` (ip(7)).
fn first_port_for_all() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let number = text.ok().and_then(|text| text.trim().parse().ok());
    number.unwrap_or(1024)
}
