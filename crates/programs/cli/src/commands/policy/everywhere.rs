//! `carina policy set --all`: writes the policy of a component to every member of a DIF.
//!
//! Each member decides for itself, as for any write by another member: whether the writer is
//! allowed (policy `access-control`), whether the member has the policy, and whether the component
//! can change while the DIF runs. A member that joins later takes over the policies of the member
//! that admits it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use carina_api::control::{Client, ClientError, RibObject, RibWrite};
use carina_text::table::Table;
use serde::Serialize;
use serde_json::json;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, refused};
use crate::report::{print_json, print_line};

/// The outcome at one member: whether it accepted the write, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    member: String,
    taken: bool,
    /// Why the member refused the write or was not reached; `None` if it accepted the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether a retry is useless, because the member refuses this policy or its parameters in
    /// principle.
    #[serde(skip)]
    is_final: bool,
}

/// Writes to every member that this system's member knows, and prints which of them accepted it.
///
/// # Errors
/// At least one member did not accept it.
pub(super) fn run(shared: &Shared, write: &RibWrite) -> Outcome {
    let node = shared.control();
    let dif = write.dif.as_ref().map(|dif| dif.as_str());
    let objects = node
        .rib(dif, None, "/members", 1)
        .attempt("reading /members")?;
    let members = members_of(&objects);
    if members.is_empty() {
        return Err(failed("no member of the DIF is known here"));
    }
    let rows = write_all(&node, write, members);
    if shared.json {
        print_json(&json!({ "path": write.path, "members": rows }))?;
    } else {
        print_line(table(&rows))?;
    }
    verdict(&rows)
}

/// The name of a member, and whether a route to it exists.
type Member = (String, bool);

fn members_of(objects: &[RibObject]) -> Vec<Member> {
    let member = |object: &RibObject| {
        let name = object.name_below("/members/")?;
        let reachable = object.fields.get("is_reachable");
        let is_reachable = reachable.and_then(|flag| flag.as_bool()) != Some(false);
        Some((name, is_reachable))
    };
    objects.iter().filter_map(member).collect()
}

/// Writes to several members at a time, so that a member that does not answer does not delay the
/// others.
fn write_all(node: &Client, write: &RibWrite, members: Vec<Member>) -> Vec<Row> {
    let left = Mutex::new(VecDeque::from(members));
    let next = || {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        left.pop_front()
    };
    let mut rows = Vec::new();
    std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            while let Some((member, is_reachable)) = next() {
                done.push(if is_reachable {
                    write_one(node, write, member)
                } else {
                    Row {
                        member,
                        taken: false,
                        reason: Some("there is no route to this member now".to_owned()),
                        is_final: false,
                    }
                });
            }
            done
        };
        let hands: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        for hand in hands {
            rows.extend(hand.join().unwrap_or_default());
        }
    });
    rows.sort_by(|a, b| a.member.cmp(&b.member));
    rows
}

fn write_one(node: &Client, write: &RibWrite, member: String) -> Row {
    let write = RibWrite {
        member: Some(member.clone()),
        ..write.clone()
    };
    let (reason, is_final) = match node.write_rib(&write) {
        Ok(_) => (None, false),
        Err(ClientError::Refused { body, .. }) => (Some(body.message), body.is_final),
        Err(other) => (Some(other.to_string()), false),
    };
    Row {
        member,
        taken: reason.is_none(),
        reason,
        is_final,
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["MEMBER", "ACCEPTED", "REASON"]);
    for row in rows {
        table.row([
            row.member.as_str(),
            if row.taken { "yes" } else { "no" },
            row.reason.as_deref().unwrap_or_default(),
        ]);
    }
    table
}

fn verdict(rows: &[Row]) -> Result<(), Failure> {
    let without = rows.iter().filter(|row| !row.taken).count();
    let text = format!(
        "{without} of {} members did not accept the change; the others keep it",
        rows.len()
    );
    match without {
        0 => Ok(()),
        _ if rows.iter().all(|row| row.is_final) => Err(refused(text)),
        _ => Err(failed(text)),
    }
}

/// Number of members that are written to at the same time.
const AT_A_TIME: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn object(path: &str, is_reachable: Option<bool>) -> RibObject {
        let flag = is_reachable.map(|flag| ("is_reachable".to_owned(), flag.into()));
        RibObject {
            path: path.to_owned(),
            class: String::new(),
            fields: flag.into_iter().collect(),
        }
    }

    #[test]
    fn members_are_read_with_their_names_as_they_are() {
        let objects = [
            object("/members", None),
            object("/members/a%2Fb%25", Some(true)),
            object("/members/c", Some(false)),
            object("/members/d", None),
        ];
        let wanted = [("a/b%", true), ("c", false), ("d", true)];
        assert_eq!(
            members_of(&objects),
            wanted.map(|(name, flag)| (name.to_owned(), flag))
        );
    }

    #[test]
    fn one_member_without_it_is_a_failure_and_named() {
        let row = |member: &str, reason: Option<&str>| Row {
            member: member.to_owned(),
            taken: reason.is_none(),
            reason: reason.map(str::to_owned),
            is_final: false,
        };
        let rows = [row("a", None), row("b", Some("it may not write here"))];
        assert!(verdict(&rows[..1]).is_ok());
        assert!(verdict(&rows).unwrap_err().to_string().contains("1 of 2"));
        let text = table(&rows).to_string();
        assert!(text.contains("it may not write here"), "{text}");
    }
}
