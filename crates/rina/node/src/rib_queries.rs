//! Queries to the RIBs of normal IPCPs that wait for answers, and the policies of each dialect.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carina_api::control::{
    Catalogue as Shown, Dialect, ParamInfo, PolicyInForce, PolicyInfo, RibObject, RibWrite,
};
use carina_api::{ErrorBody, ErrorCode};
use carina_dialects::DIALECTS;
use carina_ipcp::api::{RibObject as Object, RibOp, Scalar};
use carina_ipcp::{Catalogue, PolicySpec};
use carina_protect::{Credentials, Tools};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::member_spec::wire_dialect;
use crate::requests::{Answer, RibQuestion};

/// Queries that have not been answered yet.
#[derive(Default)]
pub(crate) struct RibQueries {
    next: u64,
    pending: BTreeMap<u64, PendingQuery>,
}

struct PendingQuery {
    reply: oneshot::Sender<Answer>,
    kind: ResponseKind,
    until: Instant,
}

/// What the answer to a query contains.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    Objects,
    /// The policies of this system's member, whose DIF has this dialect.
    Policies(Dialect),
    /// The changed policy of this system's member.
    Change,
    /// Nothing: another member received the command to leave.
    Expel,
}

impl RibQueries {
    /// Adds a query whose answer goes to `reply`. Returns its number.
    pub(crate) fn begin(&mut self, kind: ResponseKind, reply: oneshot::Sender<Answer>) -> u64 {
        let number = self.next;
        self.next += 1;
        let until = Instant::now() + ANSWER_TIMEOUT;
        let pending = PendingQuery { reply, kind, until };
        self.pending.insert(number, pending);
        number
    }

    /// Sends the answer of an IPCP to the origin of the query, if that still waits.
    pub(crate) fn answer(&mut self, id: u64, result: Result<Vec<Object>, String>) {
        let Some(pending) = self.pending.remove(&id) else {
            return;
        };
        // The policy exists, since it was checked before the query; it just cannot be used now.
        let code = match pending.kind {
            ResponseKind::Change | ResponseKind::Expel => ErrorCode::Conflict,
            ResponseKind::Objects | ResponseKind::Policies(_) => ErrorCode::NotFound,
        };
        let answer = result
            .map_err(|what| ErrorBody::new(code, what))
            .and_then(|objects| match pending.kind {
                ResponseKind::Objects | ResponseKind::Change => {
                    to_json(&objects.into_iter().map(shown).collect::<Vec<_>>())
                }
                ResponseKind::Expel => Ok(Value::Null),
                ResponseKind::Policies(dialect) => to_json(&Shown {
                    policies: known_policies(dialect),
                    in_force: objects.iter().filter_map(in_force).collect(),
                }),
            });
        let _ = pending.reply.send(answer);
    }

    /// Ends the queries that were not answered in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        let late = self
            .pending
            .extract_if(.., |_, pending| pending.until <= now);
        for (_, pending) in late {
            let what = "no answer from the member in time";
            let _ = pending
                .reply
                .send(Err(ErrorBody::new(ErrorCode::TimedOut, what)));
        }
    }

    /// Time at which the next query times out; `None` without queries.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.until).min()
    }
}

/// Checks the change of a policy against the dialect's catalogue, so that an error can tell a wrong
/// policy from one that cannot be changed any more.
pub(crate) fn check_change(
    dialect: Dialect,
    component: &str,
    fields: &[(String, Scalar)],
) -> Result<(), ErrorBody> {
    let bad = |what| ErrorBody::new(ErrorCode::BadRequest, what);
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
        // Without a policy name these are parameters of the policy in force, which the member
        // checks.
        return Ok(());
    }
    let checked = catalogue.check_params(component, &spec);
    let policy = checked.map_err(|error| bad(error.to_string()))?;
    if policy.is_live {
        Ok(())
    } else {
        let what = format!(
            "{component}: policy {} cannot be changed while the DIF runs",
            policy.name
        );
        Err(ErrorBody::new(ErrorCode::Conflict, what).for_good())
    }
}

/// Converts a request to write into a query.
///
/// # Errors
/// The type of a value is not one of a RIB.
pub(crate) fn question_of(write: RibWrite) -> Result<RibQuestion, ErrorBody> {
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

/// Converts a policy object, with its field `name` and its parameters.
fn in_force(object: &Object) -> Option<PolicyInForce> {
    let component = object.path.strip_prefix("/policies/")?.to_owned();
    let mut name = None;
    let mut params = BTreeMap::new();
    for (field, scalar) in &object.fields {
        let text = scalar.to_text();
        match field.as_str() {
            "name" => name = Some(text),
            // The catalogue contains these fields as well.
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

/// All policies that DIFs of a dialect can use.
fn catalogue(dialect: Dialect) -> Catalogue {
    DIALECTS.policies_of(wire_dialect(dialect), &Tools::new(Credentials::default()))
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

/// The policies that DIFs of a dialect can use, as JSON.
pub(crate) fn known_policies_answer(dialect: Dialect) -> Answer {
    to_json(&Shown {
        policies: known_policies(dialect),
        in_force: Vec::new(),
    })
}

fn to_json<T: serde::Serialize>(value: &T) -> Answer {
    serde_json::to_value(value).map_err(|e| ErrorBody::new(ErrorCode::Internal, e.to_string()))
}

/// Prefix of the object names of policies.
pub(crate) const POLICIES: &str = "/policies/";

/// Time limit for the answer of a member. It is slightly longer than the limit of the IPCP that
/// sends the query, so that the IPCP's error message arrives.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
