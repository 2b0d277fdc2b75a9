//! The event loop of the core's thread: waits for all descriptors, and calls the handler of each
//! ready one.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use carina_api::PortId;
use carina_sys::Ready;

use crate::core::{Core, Token};

impl Core {
    /// Handles events until the node is stopped.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::new();
        while !self.is_stopping() {
            let wait = self.wait_ns();
            if let Err(error) = self.epoll.wait(&mut ready, wait) {
                // Without epoll the node cannot work; its descriptors close with the core.
                tracing::error!(%error, "the node cannot wait and ends");
                break;
            }
            for ready in &ready {
                self.dispatch(*ready);
            }
            let now = Instant::now();
            self.expire_requests(now);
            self.request_due_n1_flows(now);
            self.publish_n1_difs();
            self.rib.expire(now);
            self.poll_vms();
            if self.has_socket_flows && now >= self.next_socket_poll {
                self.next_socket_poll = now + SOCKET_POLL_INTERVAL;
                self.poll_socket_flows();
            }
            for id in self.connections.take_closing() {
                self.close_conn(id);
            }
        }
        self.shut_down();
    }

    fn dispatch(&mut self, ready: Ready) {
        match Token::unpack(ready.token) {
            Token::Listener => self.accept_all(),
            Token::Doorbell => {
                self.doorbell.drain();
                while let Ok(order) = self.requests.try_recv() {
                    self.handle_control_request(order);
                }
            }
            Token::Plane => self.dispatch_data_plane_events(),
            Token::Connection(id) => self.read_conn(id),
            Token::FlowControl(port) => self.read_flow_control(port),
            Token::Vm(ipcp) => self.read_vm(ipcp),
        }
    }

    /// Handles a flow's control socket. Applications only close it; anything they send is ignored.
    fn read_flow_control(&mut self, port: PortId) {
        let Some(control_socket) = self
            .endpoints
            .get_mut(port)
            .and_then(|e| e.allocated()?.control_socket.as_ref())
        else {
            return;
        };
        match carina_sys::recv_with_fds(control_socket.as_fd(), &mut [0; 64]) {
            Ok(datagram) if datagram.bytes > 0 => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            _ => self.release_endpoint(port),
        }
    }

    fn wait_ns(&self) -> Option<u64> {
        let sweep = self.has_socket_flows.then_some(self.next_socket_poll);
        let deadline = self.endpoints.next_deadline();
        let members = self.member_deadline();
        let rib = self.rib.deadline();
        let next = [sweep, deadline, self.vm_deadline(), members, rib]
            .into_iter()
            .flatten()
            .min()?;
        // Waits one millisecond longer, so that what is due at `next` is due after the wait.
        let wait = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Some(wait.as_nanos() as u64)
    }
}

/// How often the node checks for the end of flows of which it has no descriptor.
const SOCKET_POLL_INTERVAL: Duration = Duration::from_secs(1);
