//! The table of a member's N-1 DIFs and N-1 flows, from what this node reports of its own members
//! or from the RIB of any member.

use carina_api::DifName;
use carina_api::control::{IpcpInfo, N1Info, N1State, RibObject};
use carina_text::table::Table;
use serde::Serialize;
use serde_json::Value;

/// One row: an N-1 flow of a member, or an N-1 DIF in which the member has no flow.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Below {
    dif: DifName,
    member: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    n1: Option<N1Info>,
}

/// The N-1 DIFs and N-1 flows of the members of DIF `name` on this system. `neighbours` are the
/// objects below `/neighbours` in the RIB of the member here; they may hold the reason why an N-1
/// flow has no neighbour.
pub(super) fn here(ipcps: &[IpcpInfo], name: &DifName, neighbours: &[RibObject]) -> Vec<Below> {
    let mut all = Vec::new();
    for ipcp in ipcps.iter().filter(|ipcp| ipcp.dif == *name) {
        if let Some(member) = &ipcp.member {
            for dif in &member.over {
                let here = member.n1.iter().filter(|n1| n1.dif == *dif);
                let mut here: Vec<N1Info> = here.cloned().collect();
                for n1 in &mut here {
                    explain(n1, neighbours);
                }
                put(&mut all, dif, ipcp.name.as_str(), here);
            }
        }
    }
    all
}

/// For an N-1 flow that is up without a neighbour, adds the reason from the member's neighbour
/// objects, if they have one.
fn explain(n1: &mut N1Info, neighbours: &[RibObject]) {
    if n1.state != N1State::Up || n1.neighbour.is_some() {
        return;
    }
    let is_its = |object: &&RibObject| {
        text(object, "n1_dif") == Some(n1.dif.as_str())
            && text(object, "remote") == Some(n1.remote.as_str())
    };
    let object = neighbours.iter().find(is_its);
    if let Some(why) = object.and_then(|object| text(object, "reason")) {
        n1.reason = Some(match &n1.reason {
            Some(known) => format!("{known}: {why}"),
            None => why.to_owned(),
        });
    }
}

/// Objects of a member's RIB from which [`elsewhere`] reads its N-1 DIFs and N-1 flows.
pub(super) struct Seen<'a> {
    /// The object `/dif`.
    pub dif: &'a [RibObject],
    /// The objects below `/over`: one for each N-1 DIF.
    pub over: &'a [RibObject],
    /// The objects below `/data-transfer/n1`: one for each N-1 flow.
    pub flows: &'a [RibObject],
    /// The objects below `/neighbours`: one for each neighbour.
    pub neighbours: &'a [RibObject],
}

/// The N-1 DIFs and N-1 flows of any member, read from its RIB.
pub(super) fn elsewhere(seen: &Seen<'_>) -> Vec<Below> {
    let member = seen.dif.first().and_then(|dif| text(dif, "member"));
    let mut all = Vec::new();
    for object in seen.over {
        let Some(dif) = object
            .name_below("/over/")
            .and_then(|name| DifName::new(name).ok())
        else {
            continue;
        };
        let mut flows = flows_in(seen, &dif);
        flows.extend(wanted_in(object, &dif));
        put(&mut all, &dif, member.unwrap_or_default(), flows);
    }
    all
}

fn put(all: &mut Vec<Below>, dif: &DifName, member: &str, flows: Vec<N1Info>) {
    let below = |n1| Below {
        dif: dif.clone(),
        member: member.to_owned(),
        n1,
    };
    if flows.is_empty() {
        all.push(below(None))
    } else {
        all.extend(flows.into_iter().map(|n1| below(Some(n1))))
    }
}

/// The N-1 flows of the member that exist in `dif`.
fn flows_in(seen: &Seen<'_>, dif: &DifName) -> Vec<N1Info> {
    let is_here = |object: &&RibObject| text(object, "dif") == Some(dif.as_str());
    let flow = |object: &RibObject| {
        let number = object.name_below("/data-transfer/n1/")?;
        let is_its = |object: &&RibObject| list(object, "n1").any(|n1| n1 == number);
        let neighbour = seen.neighbours.iter().find(is_its);
        let neighbour = neighbour.and_then(|path| path.name_below("/neighbours/"));
        let mut n1 = N1Info {
            dif: dif.clone(),
            remote: text(object, "remote")?.parse().ok()?,
            neighbour: neighbour.and_then(|name| name.parse().ok()),
            port: None,
            state: N1State::Up,
            reason: None,
        };
        explain(&mut n1, seen.neighbours);
        Some(n1)
    };
    seen.flows.iter().filter(is_here).filter_map(flow).collect()
}

/// The N-1 flows in `dif` that the member wants but does not have, each with the reason, and the
/// reason for which the N-1 DIF itself was refused.
fn wanted_in(object: &RibObject, dif: &DifName) -> Vec<N1Info> {
    let n1 = |remote: &str, state, reason: &str| {
        Some(N1Info {
            dif: dif.clone(),
            remote: remote.parse().ok()?,
            neighbour: None,
            port: None,
            state,
            reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
        })
    };
    let wanted = list(object, "wanted").zip(list(object, "reasons"));
    let wanted = wanted.map(|(remote, reason)| n1(remote, N1State::Wanted, reason));
    let refused = text(object, "refused");
    let refused = refused.map(|reason| n1(dif.as_str(), N1State::Refused, reason));
    wanted.chain(refused).flatten().collect()
}

fn text<'a>(object: &'a RibObject, field: &str) -> Option<&'a str> {
    object.fields.get(field)?.as_str()
}

fn list<'a>(object: &'a RibObject, field: &str) -> impl Iterator<Item = &'a str> {
    let items = object.fields.get(field).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str)
}

/// The rows as a table for people.
pub(super) fn table(over: &[Below]) -> Table {
    let mut table = Table::new(["DIF", "MEMBER", "REMOTE", "NEIGHBOUR", "STATE", "REASON"]);
    for Below { dif, member, n1 } in over {
        let n1 = n1.as_ref();
        let state = n1.map_or("no flow", |n1| match n1.state {
            N1State::Refused => "refused",
            N1State::Wanted => "wanted",
            N1State::Allocating => "allocating",
            N1State::Up => "up",
        });
        let neighbour = n1.and_then(|n1| n1.neighbour.as_ref());
        table.row([
            dif.to_string(),
            member.clone(),
            n1.map_or_else(String::new, |n1| n1.remote.to_string()),
            neighbour.map_or_else(String::new, ToString::to_string),
            state.to_owned(),
            n1.and_then(|n1| n1.reason.clone()).unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(path: &str, fields: Value) -> RibObject {
        RibObject {
            path: path.to_owned(),
            class: String::new(),
            fields: serde_json::from_value(fields).unwrap(),
        }
    }

    #[test]
    fn existing_and_wanted_flows_are_listed_under_their_dif() {
        let dif = [object("/dif", json!({"member": "net.b"}))];
        let over = [
            object(
                "/over/a%2Fb",
                json!({"flows": 1, "wanted": ["net"], "reasons": ["nobody"]}),
            ),
            object(
                "/over/c",
                json!({"flows": 0, "wanted": [], "reasons": [], "refused": "too short"}),
            ),
            object("/over/d", json!({"flows": 0, "wanted": [], "reasons": []})),
        ];
        let flows = [
            object(
                "/data-transfer/n1/7",
                json!({"dif": "a/b", "remote": "net.a"}),
            ),
            object(
                "/data-transfer/n1/9",
                json!({"dif": "a/b", "remote": "net.x"}),
            ),
            object(
                "/data-transfer/n1/8",
                json!({"dif": "z", "remote": "net.z"}),
            ),
        ];
        let neighbours = [
            object("/neighbours/net.a", json!({"n1": ["7"]})),
            object(
                "/neighbours/n1-9",
                json!({"n1_dif": "a/b", "remote": "net.x", "reason": "no answer"}),
            ),
        ];
        let all = elsewhere(&Seen {
            dif: &dif,
            over: &over,
            flows: &flows,
            neighbours: &neighbours,
        });
        let text = table(&all).to_string();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0], ["a/b", "net.b", "net.a", "net.a", "up"]);
        assert_eq!(rows[1], ["a/b", "net.b", "net.x", "up", "no", "answer"]);
        assert_eq!(rows[2], ["a/b", "net.b", "net", "wanted", "nobody"]);
        assert_eq!(rows[3], ["c", "net.b", "c", "refused", "too", "short"]);
        assert_eq!(rows[4], ["d", "net.b", "no", "flow"]);
        assert_eq!(rows.len(), 5);
    }

    #[test]
    fn flow_without_a_neighbour_has_the_time_and_the_reason() {
        let n1 = |neighbour: Option<&str>| N1Info {
            dif: "e".parse().unwrap(),
            remote: "r.n".parse().unwrap(),
            neighbour: neighbour.map(|name| name.parse().unwrap()),
            port: None,
            state: N1State::Up,
            reason: Some("no neighbour for 70 s".to_owned()),
        };
        let why = "the peer does not answer M_CONNECT";
        let fields = json!({"n1_dif": "e", "remote": "r.n", "reason": why});
        let objects = [object("/neighbours/n1-3", fields)];
        let mut alone = n1(None);
        explain(&mut alone, &objects);
        let shown = format!("no neighbour for 70 s: {why}");
        assert_eq!(alone.reason, Some(shown));
        let mut found = n1(Some("r.n"));
        explain(&mut found, &objects);
        assert_eq!(found, n1(Some("r.n")));
    }
}
