//! Rights at a VNO: its operator may do everything, a delegate what the operator has granted.
//!
//! A delegate learns of a network only if it has a grant for it. About other networks it gets the
//! same answers as about networks that do not exist.

use carina_api::{ErrorBody, ErrorCode};
use carina_time::Instant;
use carina_vnet::grant::{Grant, Verb};
use carina_vnet::store::Store;

use super::operations::Operations;
use crate::identity::{Identity, Role};

/// The right that a request requires of its caller.
#[derive(Clone, Copy, Debug)]
pub enum Need<'a> {
    /// The caller must be the operator.
    Operator,
    /// The caller must be the operator or have some grant for a network.
    Any {
        /// Name of the network for which the caller needs a grant.
        name: &'a str,
    },
    /// The caller must be allowed a verb on a network, and on a node if one is given.
    Verb {
        /// Name of the network on which the caller uses the verb.
        name: &'a str,
        /// The verb that the caller must be allowed.
        verb: Verb,
        /// Name of the node, if the request concerns one.
        node: Option<&'a str>,
    },
}

/// Checks that a caller may use this VNO at all.
///
/// # Errors
/// The caller is neither the operator of the VNO nor a delegate.
pub fn is_known(vno: &Identity, caller: &Identity) -> Result<(), ErrorBody> {
    if is_operator(vno, caller) || caller.role == Role::Delegate {
        Ok(())
    } else {
        Err(denied(format!(
            "{caller} may not give orders to {vno}; operator {} may",
            vno.name
        )))
    }
}

/// Whether a caller is the operator of a VNO.
pub fn is_operator(vno: &Identity, caller: &Identity) -> bool {
    caller.role == Role::Operator && caller.name == vno.name
}

/// Checks that a caller has what a request needs.
///
/// # Errors
/// The caller has no such right; the text says what the caller may do.
pub fn check<S: Store>(
    operations: &Operations<S>,
    vno: &Identity,
    caller: &Identity,
    (now, need): (Instant, Need),
) -> Result<(), ErrorBody> {
    is_known(vno, caller)?;
    if is_operator(vno, caller) {
        return Ok(());
    }
    let who = &caller.name;
    let operator = &vno.name;
    match need {
        Need::Operator => Err(denied(format!(
            "{caller} may not do this; operator {operator} may"
        ))),
        Need::Any { name } => granted(operations, vno, who, (now, name)).map(drop),
        Need::Verb { name, verb, node } => {
            let grant = granted(operations, vno, who, (now, name))?;
            if grant.lets(verb, node) {
                return Ok(());
            }
            let at = match node {
                Some(node) => {
                    let node: String = node.chars().take(64).collect();
                    format!(" at node {node}")
                }
                None => String::new(),
            };
            Err(denied(format!(
                "{caller} has no right to `{verb}`{at} in network {name}, but to {grant}; operator \
                 {operator} can grant it (`carina vnet grant`)"
            )))
        }
    }
}

fn granted<'a, S: Store>(
    operations: &'a Operations<S>,
    vno: &Identity,
    who: &str,
    (now, name): (Instant, &str),
) -> Result<&'a Grant, ErrorBody> {
    let grants = operations.grants(name).ok();
    let grant = grants.and_then(|all| all.get(who));
    grant.filter(|grant| !grant.has_ended(now)).ok_or_else(|| {
        let name: String = name.chars().take(64).collect();
        denied(format!(
            "delegate {who} has no rights in a network {name}; operator {} can grant them (`carina \
             vnet grant`)",
            vno.name
        ))
    })
}

fn denied(what: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::AccessDenied, what)
}
