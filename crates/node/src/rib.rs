//! Questions to the RIBs of normal IPCPs, and the policies they know.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carina_api::control::{
    Catalogue as Shown, Dialect, ParamInfo, PolicyInForce, PolicyInfo, RibObject, RibWrite,
};
use carina_api::{DifName, ErrorBody, ErrorCode, IpcpId};
use carina_ipcp::api::{RibObject as Object, RibOp, Scalar};
use carina_ipcp::dialects::policies_of;
use carina_ipcp::{Catalogue, Command, PolicySpec};
use carina_protect::{Credentials, Tools};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::core::Core;
use crate::ipcps::Carrier;
use crate::members::{Membership, on_the_wire};
use crate::queries::{Answer, PoliciesOf};

/// Questions that are not answered yet.
#[derive(Default)]
pub struct RibDesk {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    reply: oneshot::Sender<Answer>,
    wish: Wish,
    until: Instant,
}

/// What the asker wants to be told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Objects,
    /// The policies of this system's member, which has this dialect.
    Policies(Dialect),
    /// That a policy of this system's member is changed.
    Change,
    /// That another member was told to leave.
    Expel,
}

/// A question to a RIB.
#[derive(Debug)]
pub struct RibQuestion {
    /// The DIF; none for the only one.
    pub dif: Option<String>,
    /// The member; none for this system's.
    pub member: Option<String>,
    /// What is asked.
    pub op: RibOp,
}

impl RibDesk {
    /// An IPCP has answered. An asker that has gone meanwhile does not matter.
    pub fn answer(&mut self, id: u64, result: Result<Vec<Object>, String>) {
        let Some(waiting) = self.waiting.remove(&id) else {
            return;
        };
        // The policy exists, or it would not have been asked for: it cannot be had now.
        let code = match waiting.wish {
            Wish::Change | Wish::Expel => ErrorCode::Conflict,
            Wish::Objects | Wish::Policies(_) => ErrorCode::NotFound,
        };
        let answer = result
            .map_err(|what| ErrorBody::new(code, what))
            .and_then(|objects| match waiting.wish {
                Wish::Objects | Wish::Change => {
                    to_json(&objects.into_iter().map(shown).collect::<Vec<_>>())
                }
                Wish::Expel => Ok(Value::Null),
                Wish::Policies(dialect) => to_json(&Shown {
                    policies: known_policies(dialect),
                    in_force: objects.iter().filter_map(in_force).collect(),
                }),
            });
        let _ = waiting.reply.send(answer);
    }

    /// Gives up what nobody answered in time.
    pub fn expire(&mut self, now: Instant) {
        let late = self
            .waiting
            .extract_if(.., |_, waiting| waiting.until <= now);
        for (_, waiting) in late {
            let what = "no answer from the member in time";
            let _ = waiting
                .reply
                .send(Err(ErrorBody::new(ErrorCode::TimedOut, what)));
        }
    }

    /// When the next question is given up.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.until).min()
    }
}

impl Core {
    /// Asks a RIB; the answer goes to `reply`.
    pub fn ask_rib(&mut self, question: RibQuestion, reply: oneshot::Sender<Answer>) {
        let wish = match &question.op {
            RibOp::Write { path, .. }
                if question.member.is_none() && path.starts_with(POLICIES) =>
            {
                Wish::Change
            }
            _ => Wish::Objects,
        };
        self.put_question(question, wish, reply);
    }

    /// Tells the policies that DIFs of a dialect can have or, for a DIF, those that it can have and
    /// those in force.
    pub fn ask_policies(&mut self, of: PoliciesOf, reply: oneshot::Sender<Answer>) {
        let dif = match of {
            PoliciesOf::Dialect(dialect) => {
                let shown = Shown {
                    policies: known_policies(dialect),
                    in_force: Vec::new(),
                };
                let _ = reply.send(to_json(&shown));
                return;
            }
            PoliciesOf::Dif(dif) => Some(dif),
        };
        let member = match self.find_member(dif.as_deref(), None) {
            Ok((id, _)) => self.ipcps.get(&id).and_then(|ipcp| ipcp.member.as_ref()),
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
        let wish = Wish::Policies(dialect.unwrap_or_default());
        self.put_question(question, wish, reply);
    }

    /// Has this system's member of a DIF tell another one to leave.
    pub fn expel(&mut self, dif: &str, member: String, reply: oneshot::Sender<Answer>) {
        let id = match self.find_member(Some(dif), None) {
            Ok((id, _)) => id,
            Err(refusal) => return drop(reply.send(Err(refusal))),
        };
        let own = |ipcp: &crate::ipcps::Ipcp| ipcp.name.as_str() == member;
        if self.ipcps.get(&id).is_some_and(own) {
            let what = format!(
                "{member} is this system's own member; `carina dif leave {dif} --ipcp {member}` \
                 ends it"
            );
            return drop(reply.send(Err(ErrorBody::new(ErrorCode::BadRequest, what))));
        }
        let number = self.wait_for_answer(Wish::Expel, reply);
        if let Some(Carrier::Normal(shim)) = self.ipcps.get(&id).map(|ipcp| &ipcp.carrier) {
            shim.command(Command::Expel { id: number, member });
        }
    }

    fn wait_for_answer(&mut self, wish: Wish, reply: oneshot::Sender<Answer>) -> u64 {
        let number = self.rib.next;
        self.rib.next += 1;
        let until = Instant::now() + PATIENCE;
        let waiting = Waiting { reply, wish, until };
        self.rib.waiting.insert(number, waiting);
        number
    }

    fn put_question(&mut self, question: RibQuestion, wish: Wish, reply: oneshot::Sender<Answer>) {
        let (id, member) = match self.find_member(question.dif.as_deref(), question.member) {
            Ok(found) => found,
            Err(refusal) => return drop(reply.send(Err(refusal))),
        };
        if let RibOp::Write { path, fields } = &question.op
            && let Some(component) = path.strip_prefix(POLICIES)
            && let Some(of) = self.ipcps.get(&id).and_then(|ipcp| ipcp.member.as_ref())
            && let Err(refusal) = of.check_change(component, fields)
        {
            return drop(reply.send(Err(refusal)));
        }
        let number = self.wait_for_answer(wish, reply);
        if let Some(Carrier::Normal(shim)) = self.ipcps.get(&id).map(|ipcp| &ipcp.carrier) {
            shim.command(Command::Rib {
                id: number,
                member,
                op: question.op,
            });
        }
    }

    /// The IPCP of this system to ask, and the member that it has to ask in turn.
    fn find_member(
        &self,
        dif: Option<&str>,
        member: Option<String>,
    ) -> Result<(IpcpId, Option<String>), ErrorBody> {
        let normal = |id: &&IpcpId| {
            let ipcp = &self.ipcps[*id];
            ipcp.member.is_some() && dif.is_none_or(|dif| ipcp.dif.as_str() == dif)
        };
        let members: Vec<IpcpId> = self.made.iter().filter(normal).copied().collect();
        let mut difs: Vec<&DifName> = members.iter().map(|id| &self.ipcps[id].dif).collect();
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
            .find(|id| member.as_deref() == Some(self.ipcps[id].name.as_str()));
        match own {
            Some(id) => Ok((*id, None)),
            None => Ok((*first, member)),
        }
    }
}

impl Membership {
    /// Checks the change of a policy against what is known here, so that the refusal can say
    /// whether the wish is wrong or comes too late.
    fn check_change(&self, component: &str, fields: &[(String, Scalar)]) -> Result<(), ErrorBody> {
        let bad = |what| ErrorBody::new(ErrorCode::BadRequest, what);
        let dialect = self.made_from.dialect;
        let catalogue = catalogue(dialect);
        if !catalogue.components().any(|known| known == component) {
            let known: Vec<&str> = catalogue.components().collect();
            let what = format!(
                "dialect {} has no component {component:?} with policies; there are: {}",
                dialect.name(),
                known.join(", ")
            );
            return Err(bad(what));
        }
        let spec = PolicySpec::default().changed(fields);
        if spec.name.is_empty() {
            // Parameters of whatever is in force, which the member knows.
            return Ok(());
        }
        let policy = catalogue.judge(component, &spec).map_err(bad)?;
        match policy.is_live {
            true => Ok(()),
            false => {
                let what = format!(
                    "{component}: policy {} cannot be changed while the DIF runs",
                    policy.name
                );
                Err(ErrorBody::new(ErrorCode::Conflict, what).for_good())
            }
        }
    }
}

/// Understands what is to be written.
///
/// # Errors
/// A value that no RIB has.
pub fn question_of(write: RibWrite) -> Result<RibQuestion, ErrorBody> {
    let mut fields = Vec::new();
    for (name, value) in write.fields {
        let scalar = scalar_of(&value).ok_or_else(|| {
            let what = format!("{name}: {value} is no number, text, boolean or list of texts");
            ErrorBody::new(ErrorCode::BadRequest, what)
        })?;
        fields.push((name, scalar));
    }
    Ok(RibQuestion {
        dif: write.dif.map(String::from),
        member: write.member,
        op: RibOp::Write {
            path: write.path,
            fields,
        },
    })
}

fn scalar_of(value: &Value) -> Option<Scalar> {
    Some(match value {
        Value::Bool(yes) => Scalar::Bool(*yes),
        Value::String(text) => Scalar::Text(text.clone()),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Scalar::Uint(number),
            (None, Some(number)) => Scalar::Int(number),
            (None, None) => return None,
        },
        Value::Array(items) => Scalar::List(
            items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
        ),
        Value::Null | Value::Object(_) => return None,
    })
}

fn value_of(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Uint(number) => number.into(),
        Scalar::Int(number) => number.into(),
        Scalar::Text(text) => text.into(),
        Scalar::Bool(yes) => yes.into(),
        Scalar::List(items) => items.into(),
    }
}

fn shown(object: Object) -> RibObject {
    RibObject {
        path: object.path,
        class: object.class,
        fields: object
            .fields
            .into_iter()
            .map(|(name, scalar)| (name, value_of(scalar)))
            .collect(),
    }
}

/// A policy object: its field `name`, and its parameters.
fn in_force(object: &Object) -> Option<PolicyInForce> {
    let component = object.path.strip_prefix("/policies/")?.to_owned();
    let mut name = None;
    let mut params = BTreeMap::new();
    for (field, scalar) in &object.fields {
        let text = scalar.to_text();
        match field.as_str() {
            "name" => name = Some(text),
            // What the catalogue says as well.
            "choices" | "is_live" => {}
            _ => drop(params.insert(field.clone(), text)),
        }
    }
    Some(PolicyInForce {
        component,
        name: name?,
        params,
    })
}

/// Everything that members of DIFs of a dialect can be told to do.
fn catalogue(dialect: Dialect) -> Catalogue {
    policies_of(on_the_wire(dialect), &Tools::new(Credentials::default()))
}

fn known_policies(dialect: Dialect) -> Vec<PolicyInfo> {
    let catalogue = catalogue(dialect);
    let components: Vec<&'static str> = catalogue.components().collect();
    components
        .into_iter()
        .flat_map(|component| catalogue.policies(component))
        .map(|policy| PolicyInfo {
            component: policy.component.to_owned(),
            name: policy.name.to_owned(),
            help: policy.help.to_owned(),
            live: policy.is_live,
            params: policy
                .params
                .iter()
                .map(|param| ParamInfo {
                    name: param.name.to_owned(),
                    default: param.default.to_owned(),
                    help: param.help.to_owned(),
                })
                .collect(),
        })
        .collect()
}

fn to_json<T: serde::Serialize>(value: &T) -> Answer {
    serde_json::to_value(value).map_err(|e| ErrorBody::new(ErrorCode::Internal, e.to_string()))
}

/// Above the objects of policies.
const POLICIES: &str = "/policies/";

/// How long a member may take to answer: a little longer than the one that asks it waits, so that
/// its words arrive.
const PATIENCE: Duration = Duration::from_secs(12);
