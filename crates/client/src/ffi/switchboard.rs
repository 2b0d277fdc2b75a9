//! The other end of a control descriptor.
//!
//! A registration at the node is a connection of its own, but in C one control descriptor holds
//! any number of registrations, is readable when any of them has a request, and closing it
//! unregisters all. So the control descriptor is one end of a socket pair, and a small thread of
//! this library holds the other end and the registrations. It sleeps unless something happens and
//! ends when the control descriptor is closed or the node is gone.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use carina_api::{AppName, DifName};
use carina_sys::{recv_with_fds, socketpair_seqpacket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::errno::of_error;
use super::mark::{mark, never_restarts};
use super::talk::{self, Call, Token, errno};
use crate::node::Node;
use crate::registration::{FlowRequest, Registration};

/// Makes a control descriptor and starts its switchboard.
pub(super) fn open(node: &Node) -> Result<OwnedFd, Errno> {
    let (control, mine) = socketpair_seqpacket().map_err(errno)?;
    never_restarts(control.as_fd())?;
    let mut switchboard = Switchboard {
        node: node.clone(),
        holder: mine,
        names: Vec::new(),
        pending: HashMap::new(),
        tokens: VecDeque::new(),
        last_handle: 0,
    };
    thread::Builder::new()
        .name("rina-control".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || while switchboard.turn().is_ok() {})
        .map_err(errno)?;
    Ok(control)
}

struct Switchboard {
    node: Node,
    holder: OwnedFd,
    names: Vec<Name>,
    /// Requests that the holder was told and has not answered.
    pending: HashMap<u32, Pending>,
    /// Requests that the holder has not been told: its socket is full.
    tokens: VecDeque<Token>,
    last_handle: u32,
}

struct Name {
    name: AppName,
    dif: Option<DifName>,
    registration: Registration,
}

struct Pending {
    name: AppName,
    dif: Option<DifName>,
    request: FlowRequest,
}

/// The holder or the node is gone.
struct Over;

impl Switchboard {
    /// Waits for something to happen and deals with it.
    fn turn(&mut self) -> Result<(), Over> {
        let (holder, ready) = self.wait()?;
        if holder.intersects(PollFlags::IN | PollFlags::HUP) {
            self.take_call()?;
        }
        // A name may have been unregistered by the call; the others are found by asking.
        if ready {
            self.take_requests()?;
        }
        self.tell_tokens()
    }

    /// Waits; gives what the holder's socket is ready for and whether a registration is.
    fn wait(&self) -> Result<(PollFlags, bool), Over> {
        let told = self.tokens.is_empty();
        let interest = if told {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let mut fds = vec![PollFd::new(&self.holder, interest)];
        fds.extend(
            self.names
                .iter()
                .map(|name| PollFd::new(&name.registration, PollFlags::IN)),
        );
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(Over),
        }
        let ready = fds[1..].iter().any(|fd| !fd.revents().is_empty());
        Ok((fds[0].revents(), ready))
    }

    fn take_call(&mut self) -> Result<(), Over> {
        let mut buffer = [0; 1024];
        let datagram = recv_with_fds(&self.holder, &mut buffer).map_err(|_| Over)?;
        let Some(answer_to) = datagram.fds.into_iter().next() else {
            // End of file, or somebody wrote to the control descriptor: such bytes mean nothing.
            return if datagram.bytes == 0 {
                Err(Over)
            } else {
                Ok(())
            };
        };
        let result = match Call::decode(&buffer[..datagram.bytes]) {
            Some(call) => self.obey(call),
            None => Err(Errno::INVAL),
        };
        talk::answer(&answer_to, result);
        // Accepting one request may have brought others.
        self.take_requests()
    }

    fn obey(&mut self, call: Call) -> Result<Option<OwnedFd>, Errno> {
        match call {
            Call::Register { name, dif } => self.register(name, dif).map(|()| None),
            Call::Unregister { name, dif } => self.unregister(&name, dif.as_ref()).map(|()| None),
            Call::Accept { handle } => {
                let (registration, request) = self.take_pending(handle)?;
                // As with accept(2): who asked has given up meanwhile.
                let flow = registration.accept_request_socket(&request);
                let flow = flow.map_err(|error| match of_error(&error) {
                    Errno::CONNRESET => Errno::CONNRESET,
                    _ => Errno::CONNABORTED,
                })?;
                mark(&flow)?;
                Ok(Some(flow.socket))
            }
            Call::Refuse { handle, response } => {
                let (registration, request) = self.take_pending(handle)?;
                let reason = format!("the application refused with code {response}");
                let refused = registration.refuse(&request, &reason);
                refused.map(|()| None).map_err(|error| of_error(&error))
            }
        }
    }

    fn register(&mut self, name: AppName, dif: Option<DifName>) -> Result<(), Errno> {
        if self
            .names
            .iter()
            .any(|known| known.name == name && known.dif == dif)
        {
            return Ok(());
        }
        let registration = self
            .node
            .register(&name, dif.as_ref())
            .map_err(|error| of_error(&error))?;
        self.names.push(Name {
            name,
            dif,
            registration,
        });
        Ok(())
    }

    fn unregister(&mut self, name: &AppName, dif: Option<&DifName>) -> Result<(), Errno> {
        let of =
            |known: &AppName, in_dif: &Option<DifName>| known == name && in_dif.as_ref() == dif;
        let before = self.names.len();
        self.names.retain(|known| !of(&known.name, &known.dif));
        if self.names.len() == before {
            return Err(Errno::NXIO);
        }
        self.pending
            .retain(|_, pending| !of(&pending.name, &pending.dif));
        Ok(())
    }

    fn take_pending(&mut self, handle: u32) -> Result<(&mut Registration, FlowRequest), Errno> {
        let Pending { name, dif, request } = self.pending.remove(&handle).ok_or(Errno::INVAL)?;
        let known = self
            .names
            .iter_mut()
            .find(|known| known.name == name && known.dif == dif);
        known
            .map(|known| (&mut known.registration, request))
            .ok_or(Errno::INVAL)
    }

    /// Takes all requests of all registrations. The node's end is the end of everything.
    fn take_requests(&mut self) -> Result<(), Over> {
        for known in &mut self.names {
            while let Some(request) = known.registration.try_next_request().map_err(|_| Over)? {
                if self.pending.len() >= PENDING_MAX {
                    let reason = format!("{PENDING_MAX} requests wait for an answer already");
                    known
                        .registration
                        .refuse(&request, &reason)
                        .map_err(|_| Over)?;
                    continue;
                }
                self.last_handle = next_handle(self.last_handle, &self.pending);
                let (remote, spec) = (request.remote.clone(), request.spec);
                self.tokens.push_back(Token {
                    handle: self.last_handle,
                    remote,
                    spec,
                });
                let pending = Pending {
                    name: known.name.clone(),
                    dif: known.dif.clone(),
                    request,
                };
                self.pending.insert(self.last_handle, pending);
            }
        }
        Ok(())
    }

    /// Tells the holder of requests, as many as its socket takes.
    fn tell_tokens(&mut self) -> Result<(), Over> {
        while let Some(token) = self.tokens.front() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(self.holder.as_fd(), token.encode().as_bytes(), flags) {
                Ok(_) => drop(self.tokens.pop_front()),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(_) => return Err(Over),
            }
        }
        Ok(())
    }
}

/// The next number that is not in use and is a positive `int`.
fn next_handle(last: u32, pending: &HashMap<u32, Pending>) -> u32 {
    let mut handle = last;
    loop {
        handle = if handle >= i32::MAX as u32 {
            1
        } else {
            handle + 1
        };
        if !pending.contains_key(&handle) {
            return handle;
        }
    }
}

/// Requests without an answer per control descriptor; as in other implementations of the API.
const PENDING_MAX: usize = 2048;

/// The thread holds a message of 64 KiB on the heap and little on its stack.
const STACK_BYTES: usize = 128 * 1024;
