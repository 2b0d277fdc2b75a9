//! Registrations of application names in IPCPs.

use std::collections::BTreeMap;

use carina_api::control::EventKind;
use carina_api::ipc::{Registered, Reply};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, IpcpId};
use carina_dataplane::Refusal;

use crate::connections::{App, ConnectionId, Role, StreamListener};
use crate::core::Core;
use crate::ipcps::Registrant;
use crate::layers::{layers, unknown_dif};
use crate::rules::Action;

impl Core {
    /// Registers `name` for a connection, in one DIF or in all DIFs that its user may use.
    pub(crate) fn register(
        &mut self,
        id: ConnectionId,
        name: AppName,
        dif: Option<DifName>,
        listener: Option<StreamListener>,
    ) -> Result<(), ErrorBody> {
        let Some(conn) = self.connections.get(id) else {
            return Ok(());
        };
        let uid = conn.peer.uid;
        tracing::debug!(app = %name, ?dif, uid, "registration requested");
        let fits = |asked: &DifName| dif.as_ref().is_none_or(|dif| dif == asked);
        let found: Vec<(IpcpId, DifName)> = self
            .ipcps
            .search_order(&self.dif_order)
            .into_iter()
            .map(|ipcp| (ipcp, self.ipcps[ipcp].dif.clone()))
            .filter(|(_, dif)| fits(dif))
            .collect();
        if let (true, Some(dif)) = (found.is_empty(), &dif) {
            return Err(unknown_dif(dif, &layers(&self.ipcps)));
        }
        let allowed: Vec<_> = found
            .iter()
            .filter(|(_, dif)| {
                self.rules
                    .allow(uid, Action::Register, name.as_str(), dif.as_str())
            })
            .cloned()
            .collect();
        if allowed.is_empty() && !found.is_empty() {
            return Err(denied(uid, "register", &name, dif.as_ref()));
        }
        let taken = allowed
            .iter()
            .find(|(ipcp, _)| self.ipcps[*ipcp].names.contains_key(&name));
        let is_shared = listener.as_ref().is_some_and(|listener| listener.is_shared);
        match taken.map(|(ipcp, _)| self.ipcps[*ipcp].names.get(&name)) {
            Some(Some(Registrant::App(leader))) if is_shared => {
                if !self.join_group(*leader, id, dif.as_ref()) {
                    return Err(duplicate(&name, taken));
                }
                self.insert_registration(id, name, dif, listener, Vec::new());
                return Ok(());
            }
            Some(_) => return Err(duplicate(&name, taken)),
            None => {}
        }
        let mut ipcps = Vec::new();
        for (ipcp, dif) in &allowed {
            if let Err(refusal) = self.register_in(*ipcp, Registrant::App(id), &name) {
                ipcps
                    .iter()
                    .for_each(|ipcp| self.unregister_in(*ipcp, &name));
                return Err(refused(refusal, dif));
            }
            ipcps.push(*ipcp);
        }
        self.insert_registration(id, name, dif, listener, ipcps);
        Ok(())
    }

    fn insert_registration(
        &mut self,
        id: ConnectionId,
        name: AppName,
        dif: Option<DifName>,
        listener: Option<StreamListener>,
        ipcps: Vec<IpcpId>,
    ) {
        let answers_later = |ipcp: &IpcpId| self.ipcps[*ipcp].process.as_dyn().registers_later();
        let app = App {
            name,
            dif,
            pending_ipcps: ipcps.iter().copied().filter(answers_later).collect(),
            ipcps,
            deferred_requests: Vec::new(),
            requests: BTreeMap::new(),
            next_request: 1,
            listener,
        };
        if let Some(conn) = self.connections.get_mut(id) {
            conn.role = Role::App(app);
        }
        self.confirm_registration(id);
    }

    /// Confirms a registration once all IPCPs have confirmed it, and then sends the flow requests
    /// that arrived in the meantime.
    fn confirm_registration(&mut self, id: ConnectionId) {
        let Some(app) = self.connections.app_mut(id) else {
            return;
        };
        if !app.pending_ipcps.is_empty() {
            return;
        }
        let (name, deferred_requests) =
            (app.name.clone(), std::mem::take(&mut app.deferred_requests));
        let mut difs: Vec<DifName> = app
            .ipcps
            .iter()
            .filter_map(|ipcp| self.ipcps.dif_of(*ipcp))
            .collect();
        difs.dedup();
        let shown: Vec<&str> = difs.iter().map(DifName::as_str).collect();
        let shown = format!("in {}", shown.join(", "));
        self.journal.note(EventKind::AppRegistered, &name, shown);
        self.connections
            .send_reply(id, &Reply::Registered(Registered { name, difs }), &[]);
        for asked in deferred_requests {
            self.connections
                .send_reply(id, &Reply::FlowRequest(asked), &[]);
        }
    }

    /// Handles the result of a registration in one IPCP.
    pub(crate) fn on_registered(
        &mut self,
        ipcp: IpcpId,
        name: &AppName,
        result: Result<(), String>,
    ) {
        let Some(at) = self.ipcps.get(ipcp) else {
            return;
        };
        let (dif, who) = (at.dif.clone(), at.names.get(name).copied());
        match (result, who) {
            // The name was unregistered since, or belongs to a member, which does not wait for the
            // result.
            (Ok(()), None | Some(Registrant::Ipcp(_))) | (Err(_), None) => {}
            (Ok(()), Some(Registrant::App(id))) => self.registration_accepted(id, ipcp),
            (Err(reason), Some(Registrant::Ipcp(upper))) => {
                self.unregister_in(ipcp, name);
                if let Some(upper) = self.ipcps.get(upper) {
                    let what = format!("the DIF {dif} does not register {name}: {reason}");
                    self.journal.note(EventKind::Notice, &upper.name, what);
                }
            }
            (Err(reason), Some(Registrant::App(id))) => {
                self.unregister_in(ipcp, name);
                self.registration_refused(id, ipcp, &dif, &reason);
            }
        }
    }

    fn registration_accepted(&mut self, id: ConnectionId, ipcp: IpcpId) {
        if let Some(app) = self.connections.app_mut(id)
            && app.pending_ipcps.remove(&ipcp)
        {
            self.confirm_registration(id);
        }
    }

    /// Handles the refusal of a registration by a DIF. If the application still waits for its
    /// answer, or asked for this DIF only, it is registered nowhere. Otherwise it stays registered
    /// in the other DIFs.
    fn registration_refused(
        &mut self,
        id: ConnectionId,
        ipcp: IpcpId,
        dif: &DifName,
        reason: &str,
    ) {
        let Some(app) = self.connections.app_mut(id) else {
            return;
        };
        app.ipcps.retain(|at| *at != ipcp);
        let what = format!(
            "the DIF {dif} does not register {}: {reason}",
            app.name.as_str()
        );
        let waits = !app.pending_ipcps.is_empty();
        if !waits && (app.dif.is_none() || !app.ipcps.is_empty()) {
            let name = app.name.clone();
            return self.journal.note(EventKind::Notice, &name, what);
        }
        let error = ErrorBody::new(ErrorCode::LimitReached, what);
        let conn = self.connections.get_mut(id);
        if let Some(Role::App(app)) = conn.map(|conn| std::mem::replace(&mut conn.role, Role::New))
        {
            self.unregister(app);
        }
        self.connections.send_refusal(id, None, error);
        if !waits {
            // The application has received a confirmation that is no longer true, so it is
            // disconnected.
            self.connections.close_later(id);
        }
    }

    /// Stops waiting for the confirmations of an IPCP that was removed or is down.
    pub(crate) fn forget_pending_registrations(&mut self, ipcp: IpcpId) {
        let mut waiting = Vec::new();
        for (id, app) in self.connections.apps_mut() {
            if app.pending_ipcps.remove(&ipcp) {
                waiting.push(id);
            }
        }
        for id in waiting {
            self.confirm_registration(id);
        }
    }

    /// Removes a registration; its unanswered flow requests are denied.
    pub(crate) fn unregister(&mut self, app: App) {
        let Some(app) = self.pass_on(app) else {
            return;
        };
        for port in app.requests.into_values() {
            self.refuse_incoming(port, "the application has ended");
        }
        for ipcp in app.ipcps {
            self.unregister_in(ipcp, &app.name);
        }
        if app.pending_ipcps.is_empty() {
            self.journal.note(EventKind::AppUnregistered, &app.name, "");
        }
    }

    /// Registers in a new IPCP every application that registered in all DIFs or in this IPCP's DIF.
    pub(crate) fn register_all_in(&mut self, ipcp: IpcpId) {
        let Some(dif) = self.ipcps.dif_of(ipcp) else {
            return;
        };
        let wanting: Vec<(ConnectionId, AppName)> = self
            .connections
            .apps()
            .filter(|(_, _, app)| app.dif.as_ref().is_none_or(|d| *d == dif))
            .filter(|(_, connection, app)| {
                let (uid, name) = (connection.peer.uid, app.name.as_str());
                self.rules.allow(uid, Action::Register, name, dif.as_str())
            })
            .map(|(id, _, app)| (id, app.name.clone()))
            .collect();
        for (id, name) in wanting {
            // If two applications have the same name in different DIFs, the one registered first
            // gets the new DIF.
            let free = !self.ipcps[ipcp].names.contains_key(&name);
            if free
                && self.register_in(ipcp, Registrant::App(id), &name).is_ok()
                && let Some(app) = self.connections.app_mut(id)
            {
                app.ipcps.push(ipcp);
            }
        }
    }

    /// Registers a name in one IPCP.
    ///
    /// # Errors
    /// The refusal of the IPCP.
    pub(crate) fn register_in(
        &mut self,
        ipcp: IpcpId,
        who: Registrant,
        name: &AppName,
    ) -> Result<(), Refusal> {
        let gone = || Refusal::LinkDown("the IPCP no longer exists".into());
        let reader = match who {
            Registrant::Ipcp(upper) => self.connect_reader(upper),
            Registrant::App(_) => None,
        };
        let ipcp = self.ipcps.get_mut(ipcp).ok_or_else(gone)?;
        let process = ipcp.process.as_dyn_mut();
        match reader {
            Some(reader) => process.register_ipcp(name, reader)?,
            None => process.register(name)?,
        }
        ipcp.names.insert(name.clone(), who);
        Ok(())
    }

    /// Removes the registration of a name in one IPCP.
    pub(crate) fn unregister_in(&mut self, ipcp: IpcpId, name: &AppName) {
        let Some(ipcp) = self.ipcps.get_mut(ipcp) else {
            return;
        };
        ipcp.names.remove(name);
        if let Err(refusal) = ipcp.process.as_dyn_mut().unregister(name) {
            tracing::warn!(%refusal, %name, ipcp = %ipcp.name, "a name was not registered");
        }
    }
}

/// The error for an operation that an access rule forbids.
pub(crate) fn denied(uid: u32, verb: &str, name: &AppName, dif: Option<&DifName>) -> ErrorBody {
    let place = dif.map_or("any DIF".to_owned(), |dif| format!("the DIF {dif}"));
    ErrorBody::new(
        ErrorCode::AccessDenied,
        format!("user {uid} may not {verb} {name} in {place}; see [[rule]] in the configuration"),
    )
}

fn duplicate(name: &AppName, taken: Option<&(IpcpId, DifName)>) -> ErrorBody {
    let place = taken.map_or("a DIF".to_owned(), |(_, dif)| format!("the DIF {dif}"));
    ErrorBody::new(
        ErrorCode::DuplicateName,
        format!("the name {name} is already registered in {place}"),
    )
}

/// Converts a refusal of an IPCP to an error of `ipc.sock`.
pub(crate) fn refused(refusal: Refusal, dif: &DifName) -> ErrorBody {
    let code = match &refusal {
        Refusal::NameTaken(_) => ErrorCode::DuplicateName,
        Refusal::NotRegistered(_) | Refusal::UnknownPort(_) => ErrorCode::NotFound,
        Refusal::Unreachable(_) => ErrorCode::UnknownName,
        Refusal::Quality(_) => ErrorCode::SpecNotMet,
        Refusal::LinkDown(_) => ErrorCode::LinkDown,
        _ => ErrorCode::Internal,
    };
    ErrorBody::new(code, format!("DIF {dif}: {refusal}"))
}
