//! Handles the requests of `control.sock`.

use std::collections::{BTreeMap, BTreeSet};

use carina_api::control::{AppInfo, DifInfo, FlowInfo, FlowState, IpcpInfo, IpcpType, NodeInfo};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, IpcpId, LocalName, PortId};
use serde::Serialize;
use serde_json::Value;

use crate::config::Config;
use crate::core::Core;
use crate::endpoints::{DataPath, Endpoint, FlowOwner, Stage};
use crate::ipcp_handlers::NewIpcp;
use crate::ipcp_kinds::open_device;
use crate::membership::Membership;
use crate::requests::{Answer, ControlRequest, Query, Request};

impl Core {
    /// Handles a request of another thread. The answer is dropped if that thread no longer waits.
    pub(crate) fn handle_control_request(&mut self, order: ControlRequest) {
        match order {
            ControlRequest::Query(Query {
                request: Request::Rib(question),
                reply,
            }) => self.query_rib(question, reply),
            ControlRequest::Query(Query {
                request: Request::Expel(dif, member),
                reply,
            }) => self.expel(&dif, member, reply),
            ControlRequest::Query(Query {
                request: Request::Policies(of),
                reply,
            }) => self.query_policies(of, reply),
            ControlRequest::Query(query) => {
                let answer = self.reply_to(query.request);
                if let Err(error) = &answer {
                    let (code, reason) = (error.code, &error.message);
                    tracing::debug!(?code, reason, "request of control.sock refused");
                }
                let _ = query.reply.send(answer);
            }
            ControlRequest::Attach(attachment) => {
                let (name, device) = (attachment.name, attachment.device);
                let result = self.add_ipcp(NewIpcp {
                    opened: open_device(&name, &self.name, device),
                    name,
                    dif: attachment.dif,
                    made_from: None,
                    member: None,
                });
                let _ = attachment.reply.send(result.map(drop));
            }
        }
    }

    #[expect(
        clippy::too_many_lines,
        reason = "the steps of one request, in the order in which they may fail"
    )]
    fn reply_to(&mut self, request: Request) -> Answer {
        match request {
            Request::Node => json(&self.node_info()),
            Request::Ipcps => json(
                &self
                    .ipcps
                    .ids()
                    .into_iter()
                    .map(|id| self.ipcp_info(id))
                    .collect::<Vec<_>>(),
            ),
            Request::CreateIpcp(create) => {
                let id = self.create_ipcp(create)?;
                json(&self.ipcp_info(id))
            }
            Request::DestroyIpcp(name) => {
                let id = self
                    .ipcps
                    .named(&name)
                    .ok_or_else(|| missing("IPCP", &name))?;
                if self.ipcps[id].vm.is_some() {
                    let what = format!("IPCP {name} belongs to the VM {name}; destroy the VM");
                    return Err(ErrorBody::new(ErrorCode::Conflict, what));
                }
                self.remove_ipcp(id, "destroyed by command");
                Ok(Value::Null)
            }
            Request::CreateDif(create) => {
                let id = self.create_dif(create)?;
                json(&self.ipcp_info(id))
            }
            Request::ExtendDif(name, change) => {
                let id = self.extend_dif(&name, &change)?;
                json(&self.ipcp_info(id))
            }
            Request::RetractDif(name, below, ipcp) => {
                let id = self.retract_dif(&name, &below, ipcp.as_deref())?;
                json(&self.ipcp_info(id))
            }
            Request::LeaveDif(name, ipcp) => {
                self.leave_dif(&name, ipcp.as_deref())?;
                Ok(Value::Null)
            }
            // These queries are handled above, where the IPCP's answer is awaited.
            Request::Rib(_) | Request::Policies(_) | Request::Expel(..) => Ok(Value::Null),
            Request::Apps => json(&self.app_infos()),
            Request::Flows => {
                self.poll_socket_flows();
                json(&self.flow_infos())
            }
            Request::DeallocateFlow(port) => self.deallocate_by_command(port).map(|()| Value::Null),
            Request::Difs => json(&self.dif_infos()),
            Request::Vms => json(&self.vm_infos()),
            Request::Vm(name) => {
                let id = self
                    .ipcps
                    .vm_named(&name)
                    .ok_or_else(|| missing("VM", &name))?;
                json(&self.vm_info(id))
            }
            Request::CreateVm(create) => {
                let id = self.create_vm(create)?;
                json(&self.vm_info(id))
            }
            Request::DestroyVm(name) => {
                let id = self
                    .ipcps
                    .vm_named(&name)
                    .ok_or_else(|| missing("VM", &name))?;
                self.remove_ipcp(id, "destroyed by command");
                Ok(Value::Null)
            }
            Request::Capture(name, tap) => json(&self.capture(&name, tap)?),
            Request::Events(since) => json(&self.journal.since(since)),
            Request::Apply(text) => {
                let config = Config::parse(&text, None)
                    .map_err(|e| ErrorBody::new(ErrorCode::BadConfig, e.to_string()))?;
                json(&self.apply(config)?)
            }
        }
    }

    fn node_info(&self) -> NodeInfo {
        NodeInfo {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_ms: self.start.elapsed().as_millis() as u64,
            run_dir: self.run_dir_lock.dir().path().into(),
            ipcps: self.ipcps.len() as u32,
            apps: self.connections.apps().count() as u32,
            flows: self.flow_infos().len() as u32,
            vms: self.ipcps.values().filter(|ipcp| ipcp.vm.is_some()).count() as u32,
        }
    }

    fn ipcp_info(&self, id: IpcpId) -> IpcpInfo {
        let ipcp = &self.ipcps[id];
        IpcpInfo {
            id,
            name: ipcp.name.clone(),
            kind: ipcp.kind,
            dif: ipcp.dif.clone(),
            side: ipcp.side,
            state: ipcp.state,
            reason: ipcp.reason.clone(),
            peer: ipcp.peer.clone(),
            vmpi_id: ipcp.vmpi_id,
            worker: self.plane.worker_of(id).map(|worker| worker as u16),
            vm: ipcp.vm.as_ref().map(|_| ipcp.name.clone()),
            flows: self.endpoints.flows_over(id),
            peer_names: ipcp.peer_names.iter().cloned().collect(),
            member: ipcp.member.as_ref().map(Membership::info),
        }
    }

    fn app_infos(&self) -> Vec<AppInfo> {
        let local = self.connections.apps().map(|(_, connection, app)| AppInfo {
            name: app.name.clone(),
            difs: self.difs_of(&app.ipcps),
            via: None,
            pid: u32::try_from(connection.peer.pid).ok(),
            uid: Some(connection.peer.uid),
            pending: app.requests.len() as u32,
        });
        let remote = self.ipcps.values().flat_map(|ipcp| {
            // The directory of a normal DIF contains the names of this system too.
            let others = ipcp.peer_names.iter();
            let others = others.filter(|name| !ipcp.names.contains_key(name));
            others.map(|name| AppInfo {
                name: name.clone(),
                difs: vec![ipcp.dif.clone()],
                via: Some(ipcp.name.clone()),
                pid: None,
                uid: None,
                pending: 0,
            })
        });
        local.chain(remote).collect()
    }

    fn difs_of(&self, ipcps: &[IpcpId]) -> Vec<DifName> {
        let mut difs: Vec<DifName> = ipcps
            .iter()
            .filter_map(|id| self.ipcps.dif_of(*id))
            .collect();
        difs.dedup();
        difs
    }

    /// All flows, each once. A flow within this system is shown at the end that requested it.
    fn flow_infos(&self) -> Vec<FlowInfo> {
        let shown = |(port, end): &(PortId, &Endpoint)| match &end.stage {
            Stage::Allocated(allocated) => allocated
                .data_path
                .peer()
                .is_none_or(|peer| !self.endpoints.contains(peer) || *port < peer),
            Stage::Requested { .. } => true,
            // For a flow within this system, the end that requested it is shown instead.
            Stage::Incoming { .. } | Stage::Accepted { .. } => self
                .ipcps
                .get(end.ipcp)
                .is_some_and(|ipcp| ipcp.kind != IpcpType::Loopback),
        };
        self.endpoints
            .iter()
            .filter(shown)
            .filter_map(|(port, end)| {
                let ipcp = self.ipcps.get(end.ipcp)?;
                let user = match end.owner {
                    FlowOwner::Ipcp(upper, _) => {
                        self.ipcps.get(upper).map(|ipcp| ipcp.name.clone())
                    }
                    FlowOwner::App => None,
                };
                let (state, direct) = match &end.stage {
                    Stage::Allocated(allocated) if allocated.close_reported => {
                        (FlowState::Closing, false)
                    }
                    Stage::Allocated(allocated) => {
                        let within = matches!(
                            allocated.data_path,
                            DataPath::Direct(_) | DataPath::Sockets { .. }
                        );
                        (FlowState::Up, within)
                    }
                    _ => (FlowState::Allocating, false),
                };
                Some(FlowInfo {
                    user,
                    port,
                    local: end.local.clone(),
                    remote: end.remote.clone(),
                    dif: ipcp.dif.clone(),
                    ipcp: ipcp.name.clone(),
                    state,
                    spec: end.spec,
                    mode: end.mode,
                    direct,
                    pid: u32::try_from(end.pid).ok(),
                })
            })
            .collect()
    }

    fn dif_infos(&self) -> Vec<DifInfo> {
        let mut difs: BTreeMap<&DifName, (IpcpType, Vec<LocalName>, BTreeSet<AppName>)> =
            BTreeMap::new();
        let mut order = Vec::new();
        for id in self.ipcps.search_order(&self.dif_order) {
            let ipcp = &self.ipcps[id];
            let (_, ipcps, names) = difs.entry(&ipcp.dif).or_insert_with(|| {
                order.push(&ipcp.dif);
                (ipcp.kind, Vec::new(), BTreeSet::new())
            });
            ipcps.push(ipcp.name.clone());
            names.extend(ipcp.names.keys().chain(&ipcp.peer_names).cloned());
        }
        let info = |dif: &DifName| {
            let (kind, ipcps, names) = difs.get(dif)?.clone();
            let mut members = self.ipcps.values().filter(|ipcp| ipcp.dif == *dif);
            let dialect = members.find_map(|ipcp| Some(ipcp.member.as_ref()?.made_from.dialect));
            Some(DifInfo {
                name: dif.clone(),
                kind,
                dialect,
                ipcps,
                names: names.into_iter().collect(),
            })
        };
        order.into_iter().filter_map(info).collect()
    }
}

fn missing(kind: &str, name: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("no {kind} is named {name:?}"))
}

fn json<T: Serialize>(value: &T) -> Answer {
    serde_json::to_value(value).map_err(|e| ErrorBody::new(ErrorCode::Internal, e.to_string()))
}
