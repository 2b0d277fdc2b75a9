//! The control service: the thread behind a control descriptor of the C library.
//!
//! At the node each registration is a connection of its own. In C, one control descriptor holds any
//! number of registrations, is readable when any of them has a flow request, and unregisters all of
//! them when it is closed. So the control descriptor is one end of a socket pair. A small thread of
//! this library, the control service, holds the other end and the registrations. It sleeps while
//! nothing happens. It ends when the last copy of the control descriptor is closed or the node has
//! ended. [`super::fork_handover`] describes what happens after a fork.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carina_api::{AppName, DifName};
use carina_sys::recv_with_fds;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use super::control_protocol::{self, Call, RequestNotice};
use super::errno::of_error;
use super::flow_marker::mark_flow_socket;
use crate::error::Error;
use crate::node::Node;
use crate::registration::{FlowRequest, Registration};

/// Serves the holder of a control descriptor until the holder closes it or the node ends.
///
/// The lock of `slot` is free while the thread waits, so that a fork copies the service in a
/// consistent state.
pub(super) fn serve(slot: &'static ServiceSlot) {
    loop {
        let interest = match &*slot.lock() {
            Some(service) => service.interest(),
            None => return,
        };
        let Ok(ready) = wait(&interest) else { break };
        let mut served = slot.lock();
        let Some(service) = served.as_mut() else {
            return;
        };
        if service.handle_ready(ready).is_err() {
            break;
        }
    }
    *slot.lock() = None;
}

/// Memory for one control service. It is reused and never freed, so that its lock can be held from
/// before a fork until after it.
#[derive(Default)]
pub(super) struct ServiceSlot {
    place: Mutex<Option<ControlService>>,
}

impl ServiceSlot {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<ControlService>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct ControlService {
    /// Lock file that the parent and its forked children share. The process that holds the lock
    /// runs the control service.
    service_lock: OwnedFd,
    node: Node,
    application: OwnedFd,
    names: Vec<RegisteredName>,
    /// Requests that were reported to the application and that it has not answered.
    pending: HashMap<u32, Pending>,
    /// Requests that could not be reported to the application yet, because its socket was full.
    notices: VecDeque<RequestNotice>,
    last_handle: u32,
}

struct RegisteredName {
    name: AppName,
    dif: Option<DifName>,
    registration: Registration,
}

struct Pending {
    name: AppName,
    dif: Option<DifName>,
    request: FlowRequest,
}

/// What `poll` reported: the events of the holder's socket, and whether a registration is ready.
type Ready = (PollFlags, bool);

/// The holder has closed the control descriptor, or the node has ended.
pub(super) struct Disconnected;

/// Waits until one of the descriptors of [`ControlService::interest`] is ready.
fn wait(interest: &[(RawFd, PollFlags)]) -> Result<Ready, Disconnected> {
    let mut fds: Vec<PollFd<'_>> = interest
        .iter()
        .map(|&(fd, events)| {
            // SAFETY: only the thread that waits here opens and closes the descriptors of its
            // service.
            PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(fd) }, events)
        })
        .collect();
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(_) => return Err(Disconnected),
    }
    let ready = fds[1..].iter().any(|fd| !fd.revents().is_empty());
    Ok((fds[0].revents(), ready))
}

fn has_hung_up(registration: &Registration) -> bool {
    let mut fds = [PollFd::new(registration, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&at_once)).is_err() || fds[0].revents().contains(PollFlags::HUP)
}

impl Drop for RegisteredName {
    /// Ends the registration even if a forked process holds a copy of its socket.
    fn drop(&mut self) {
        // Fails if the node has ended; then there is no registration to end.
        let _ = shutdown(&self.registration, Shutdown::Both);
    }
}

impl ControlService {
    /// A service without names. `application` is the service's end of the control descriptor.
    pub(super) fn new(service_lock: OwnedFd, node: Node, application: OwnedFd) -> ControlService {
        ControlService {
            service_lock,
            node,
            application,
            names: Vec::new(),
            pending: HashMap::new(),
            notices: VecDeque::new(),
            last_handle: 0,
        }
    }

    pub(super) fn service_lock(&self) -> &OwnedFd {
        &self.service_lock
    }

    /// Removes the names that another process unregistered since the fork. Called in a child
    /// process when it takes over.
    pub(super) fn drop_closed_names(&mut self) -> Result<(), Disconnected> {
        let had_names = !self.names.is_empty();
        self.names.retain(|known| !has_hung_up(&known.registration));
        if had_names && self.names.is_empty() {
            return Err(Disconnected);
        }
        Ok(())
    }

    /// The descriptors and events to poll for; the holder's socket comes first.
    fn interest(&self) -> Vec<(RawFd, PollFlags)> {
        let application = if self.notices.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let registered =
            |name: &RegisteredName| (name.registration.as_fd().as_raw_fd(), PollFlags::IN);
        std::iter::once((self.application.as_raw_fd(), application))
            .chain(self.names.iter().map(registered))
            .collect()
    }

    /// Handles the events that `poll` reported.
    fn handle_ready(&mut self, (application, ready): Ready) -> Result<(), Disconnected> {
        if application.intersects(!PollFlags::OUT) {
            self.take_call()?;
        }
        // The call may have unregistered a name, so all registrations are asked for requests.
        if ready {
            self.take_requests()?;
        }
        self.send_notices()
    }

    fn take_call(&mut self) -> Result<(), Disconnected> {
        let mut buffer = [0; 1024];
        let datagram = recv_with_fds(&self.application, &mut buffer).map_err(|_| Disconnected)?;
        let Some(answer_to) = datagram.fds.into_iter().next() else {
            // Either the end of file, or bytes that the program wrote to the control descriptor,
            // which have no meaning.
            return if datagram.bytes == 0 {
                Err(Disconnected)
            } else {
                Ok(())
            };
        };
        let result = match Call::decode(&buffer[..datagram.bytes]) {
            Some(call) => self.handle_call(call),
            None => Err(Errno::INVAL),
        };
        control_protocol::answer(&answer_to, result);
        // Accepting one request may have queued others.
        self.take_requests()
    }

    fn handle_call(&mut self, call: Call) -> Result<Option<OwnedFd>, Errno> {
        match call {
            Call::Register { name, dif } => self.register(name, dif).map(|()| None),
            Call::Unregister { name, dif } => self.unregister(&name, dif.as_ref()).map(|()| None),
            Call::Accept { handle } => {
                let (registration, request) = self.take_pending(handle)?;
                // As with accept(2): the caller has given up meanwhile.
                let flow = registration.accept_request_socket(&request);
                let flow = flow.map_err(|error| match of_error(&error) {
                    Errno::CONNRESET => Errno::CONNRESET,
                    _ => Errno::CONNABORTED,
                })?;
                mark_flow_socket(&flow)?;
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
        self.names.push(RegisteredName {
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

    /// Reads all pending requests of all registrations. Returns [`Disconnected`] when the node has
    /// ended, or when a DIF has refused the last registered name.
    fn take_requests(&mut self) -> Result<(), Disconnected> {
        let mut refused = Vec::new();
        for (at, known) in self.names.iter_mut().enumerate() {
            loop {
                let request = match known.registration.try_next_request() {
                    Ok(Some(request)) => request,
                    Ok(None) => break,
                    Err(Error::Refused(_)) => {
                        refused.push(at);
                        break;
                    }
                    Err(_) => return Err(Disconnected),
                };
                if self.pending.len() >= PENDING_MAX {
                    let reason = format!("{PENDING_MAX} requests wait for an answer already");
                    known
                        .registration
                        .refuse(&request, &reason)
                        .map_err(|_| Disconnected)?;
                    continue;
                }
                self.last_handle = next_handle(self.last_handle, &self.pending);
                let (remote, spec) = (request.remote.clone(), request.spec);
                self.notices.push_back(RequestNotice {
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
        for at in refused.iter().rev() {
            let gone = self.names.remove(*at);
            self.pending
                .retain(|_, pending| pending.name != gone.name || pending.dif != gone.dif);
        }
        if self.names.is_empty() && !refused.is_empty() {
            Err(Disconnected)
        } else {
            Ok(())
        }
    }

    /// Reports queued requests to the holder until its socket is full.
    fn send_notices(&mut self) -> Result<(), Disconnected> {
        while let Some(notice) = self.notices.front() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(self.application.as_fd(), notice.encode().as_bytes(), flags) {
                Ok(_) => drop(self.notices.pop_front()),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(_) => return Err(Disconnected),
            }
        }
        Ok(())
    }
}

/// The next free handle, a positive `int` in C.
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

/// Largest number of unanswered requests per control descriptor, as in other implementations of the
/// API.
const PENDING_MAX: usize = 2048;
