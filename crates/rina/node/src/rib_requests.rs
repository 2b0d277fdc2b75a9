//! Queries of `control.sock` to the RIBs of normal IPCPs: selects the IPCP and sends it the query.

use carina_api::{DifName, ErrorBody, ErrorCode, IpcpId};
use carina_ipcp::Command;
use carina_ipcp::api::RibOp;
use tokio::sync::oneshot;

use crate::core::Core;
use crate::ipcps::Process;
use crate::requests::{Answer, PoliciesOf, RibQuestion};
use crate::rib_queries::{POLICIES, ResponseKind, check_change, known_policies_answer};

impl Core {
    /// Sends a query to a RIB; the answer goes to `reply`.
    pub(crate) fn query_rib(&mut self, question: RibQuestion, reply: oneshot::Sender<Answer>) {
        let kind = match &question.op {
            RibOp::Write { path, .. }
                if question.member.is_none() && path.starts_with(POLICIES) =>
            {
                ResponseKind::Change
            }
            _ => ResponseKind::Objects,
        };
        self.send_query(question, kind, reply);
    }

    /// Answers which policies DIFs of a dialect can use. For a DIF, also answers which are in
    /// force.
    pub(crate) fn query_policies(&mut self, of: PoliciesOf, reply: oneshot::Sender<Answer>) {
        let dif = match of {
            PoliciesOf::Dialect(dialect) => {
                let _ = reply.send(known_policies_answer(dialect));
                return;
            }
            PoliciesOf::Dif(dif) => Some(dif),
        };
        let member = match self.find_member(dif.as_deref(), None) {
            Ok((id, _)) => self.ipcps.member(id),
            Err(refusal) => return drop(reply.send(Err(refusal))),
        };
        let dialect = member.map(|member| member.made_from.dialect);
        let op = RibOp::Read {
            path: "/policies".to_owned(),
            scope: 1,
            filter: String::new(),
        };
        let question = RibQuestion {
            dif,
            member: None,
            op,
        };
        let kind = ResponseKind::Policies(dialect.unwrap_or_default());
        self.send_query(question, kind, reply);
    }

    /// Makes this system's member of a DIF tell another member to leave.
    pub(crate) fn expel(&mut self, dif: &str, member: String, reply: oneshot::Sender<Answer>) {
        let id = match self.find_member(Some(dif), None) {
            Ok((id, _)) => id,
            Err(refusal) => return drop(reply.send(Err(refusal))),
        };
        let own = |ipcp: &crate::ipcps::Ipcp| ipcp.name.as_str() == member;
        if self.ipcps.get(id).is_some_and(own) {
            let what = format!(
                "{member} is this system's own member; `carina dif leave {dif} --ipcp {member}` \
                 ends it"
            );
            return drop(reply.send(Err(ErrorBody::new(ErrorCode::BadRequest, what))));
        }
        let number = self.rib.begin(ResponseKind::Expel, reply);
        if let Some(Process::Normal(shim)) = self.ipcps.get(id).map(|ipcp| &ipcp.process) {
            shim.command(Command::Expel { id: number, member });
        }
    }

    fn send_query(
        &mut self,
        question: RibQuestion,
        kind: ResponseKind,
        reply: oneshot::Sender<Answer>,
    ) {
        let (id, member) = match self.find_member(question.dif.as_deref(), question.member) {
            Ok(found) => found,
            Err(refusal) => return drop(reply.send(Err(refusal))),
        };
        if let RibOp::Write { path, fields } = &question.op
            && let Some(component) = path.strip_prefix(POLICIES)
            && let Some(of) = self.ipcps.member(id)
            && let Err(refusal) = check_change(of.made_from.dialect, component, fields)
        {
            return drop(reply.send(Err(refusal)));
        }
        let number = self.rib.begin(kind, reply);
        if let Some(Process::Normal(shim)) = self.ipcps.get(id).map(|ipcp| &ipcp.process) {
            shim.command(Command::Rib {
                id: number,
                member,
                op: question.op,
            });
        }
    }

    /// The IPCP of this system that handles a query, and the remote member that it must ask, if
    /// any.
    fn find_member(
        &self,
        dif: Option<&str>,
        member: Option<String>,
    ) -> Result<(IpcpId, Option<String>), ErrorBody> {
        let is_asked = |id: &IpcpId| {
            let ipcp = &self.ipcps[*id];
            ipcp.member.is_some() && dif.is_none_or(|dif| ipcp.dif.as_str() == dif)
        };
        let members: Vec<IpcpId> = self.ipcps.ids().into_iter().filter(is_asked).collect();
        let mut difs: Vec<&DifName> = members.iter().map(|id| &self.ipcps[*id].dif).collect();
        difs.dedup();
        let Some(first) = members.first() else {
            let what = match dif {
                Some(dif) => format!("this system has no member of a normal DIF {dif:?}"),
                None => "this system has no member of a normal DIF".to_owned(),
            };
            return Err(ErrorBody::new(ErrorCode::NotFound, what));
        };
        if difs.iter().any(|dif| **dif != *difs[0]) {
            let all: Vec<&str> = difs.iter().map(|dif| dif.as_str()).collect();
            let what = format!(
                "this system is in several normal DIFs: name one of {}",
                all.join(", ")
            );
            return Err(ErrorBody::new(ErrorCode::BadRequest, what));
        }
        let own = members
            .iter()
            .find(|id| member.as_deref() == Some(self.ipcps[**id].name.as_str()));
        match own {
            Some(id) => Ok((*id, None)),
            None => Ok((*first, member)),
        }
    }
}
