//! How the app of a normal IPCP processes requests of the plane.

use carina_api::{AppName, FlowSpec, PortId};
use carina_engine::counters::Value;
use carina_engine::{Close, Links};
use carina_ipcp::{Command, FlowKey};

use super::Normal;
use super::flows::{FlowState, NormalFlow};
use crate::event::Event;
use crate::ipcp_app::{FlowLinks, MemberRequest, Request};

impl Normal {
    /// Processes all pending requests.
    pub(super) fn handle_requests(&mut self, links: &mut Links) {
        loop {
            let Some(request) = self.requests.pop() else {
                return;
            };
            if !self.is_removed {
                self.handle_request(request, links);
            }
        }
    }

    fn handle_request(&mut self, request: Request, links: &mut Links) {
        match request {
            Request::Register(name, _) => {
                let name = name.into();
                self.machine.handle(self.now, Command::Register { name });
            }
            Request::Unregister(name) => {
                let name = name.into();
                self.machine.handle(self.now, Command::Unregister { name });
            }
            Request::Allocate {
                port,
                local,
                remote,
                spec,
                links: ends,
            } => self.allocate(port, &local, &remote, &spec, ends, links),
            Request::Respond { port, answer } => self.respond(port, answer, links),
            Request::Refuse { port, reason } => self.refuse(port, reason),
            Request::Member(request) => self.handle_member_request(request, links),
            Request::Remove => self.remove(links),
        }
    }

    fn handle_member_request(&mut self, request: MemberRequest, links: &mut Links) {
        match request {
            MemberRequest::Command(command) => match command {
                Command::Enroll { n1 } | Command::GiveUpN1 { n1, .. } => {
                    self.handle_on(n1, command);
                }
                command => self.machine.handle(self.now, command),
            },
            MemberRequest::Attach { n1, links: new } => self.attach(n1, new, links),
            MemberRequest::N1Up { n1, props } => self.n1_up(n1, props),
            MemberRequest::DropN1 { n1, reason } => self.drop_n1(n1, reason, links),
        }
    }

    fn allocate(
        &mut self,
        port: PortId,
        local: &AppName,
        remote: &AppName,
        spec: &FlowSpec,
        ends: FlowLinks,
        links: &mut Links,
    ) {
        let wire_spec = carina_wire::FlowSpec::from(*spec);
        let asked = self
            .machine
            .allocate(self.now, local.as_str(), remote.as_str(), wire_spec);
        match asked {
            Ok(key) => {
                let flow = NormalFlow::new(port, FlowState::Requested, Some(ends), spec);
                self.insert_flow(key, flow, links);
            }
            Err(error) => self.deny(port, ends, error.to_string(), links),
        }
    }

    /// Handles a failed allocation: closes the user's end and reports the reason to the manager.
    pub(super) fn deny(
        &mut self,
        port: PortId,
        ends: FlowLinks,
        reason: String,
        links: &mut Links,
    ) {
        ends.refuse(reason.clone(), links);
        self.ports.remove(port);
        self.events.put(Event::AllocateResult {
            port,
            result: Err(reason),
        });
    }

    fn respond(&mut self, port: PortId, answer: Result<FlowLinks, String>, links: &mut Links) {
        let key = self.keys.get(&port).copied();
        let ends = match answer {
            Ok(ends) => ends,
            Err(reason) => return self.refuse(port, reason),
        };
        let is_offered = |flow: &NormalFlow| flow.state == FlowState::Offered;
        let Some(key) = key.filter(|key| self.flow(*key).is_some_and(is_offered)) else {
            // The peer has cancelled the request in the meantime; the manager knows that.
            ends.refuse("the request no longer exists".to_owned(), links);
            self.ports.remove(port);
            return;
        };
        if let Some(flow) = self.flow_mut(key) {
            flow.links = Some(ends);
            flow.state = FlowState::Open;
        }
        self.set_cookies(key, ends, links);
        self.state_rooms();
        self.row.add(Value::FlowsOpened, 1);
        let answer = Ok(());
        self.machine
            .handle(self.now, Command::Respond { flow: key, answer });
        self.roomy.push(key);
    }

    fn refuse(&mut self, port: PortId, reason: String) {
        let Some(key) = self.keys.get(&port).copied() else {
            return;
        };
        if self
            .flow(key)
            .is_some_and(|flow| flow.state == FlowState::Offered)
        {
            let answer = Err(reason.into());
            self.machine
                .handle(self.now, Command::Respond { flow: key, answer });
            self.remove_flow(key);
            self.ports.remove(port);
        }
    }

    fn remove(&mut self, links: &mut Links) {
        const DESTROYED: &str = "the IPC process was destroyed";
        for index in 0..self.flows.len() {
            let key = FlowKey(index as u32);
            let Some(state) = self.flow(key).map(|flow| flow.state) else {
                continue;
            };
            match state {
                FlowState::Open | FlowState::Ending => {
                    self.flow_closed(key, Close::Failed(DESTROYED.to_owned()), links);
                    if let Some(flow) = self.remove_flow(key) {
                        self.end_flow(flow, links);
                    }
                }
                _ => self.request_ended(key, DESTROYED, links),
            }
        }
        for flow in std::mem::take(&mut self.lingering) {
            self.end_flow(flow, links);
        }
        // The neighbours learn that the member leaves, and through them the DIF. If the message is
        // lost, their keep-alive detects it.
        self.machine.handle(self.now, Command::Leave);
        self.flush(links);
        self.drop_all_n1s(links);
        self.is_removed = true;
        links.finish(self.id);
    }
}
