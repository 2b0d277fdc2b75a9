//! Members of DIFs, as a node reports them.

use carina_api::control::{DifCreate, DifRole, IpcpInfo, MemberInfo, MemberState};
use carina_api::ipc::Mode;
use carina_api::{ErrorCode, FlowSpec};

use super::{House, dif, eventually, eventually_or};

/// The specification of a member of a native DIF over one N-1 DIF.
pub(crate) fn request(name: &str, role: DifRole, over: &str, ipcp: &str) -> DifCreate {
    DifCreate {
        name: dif(name),
        role,
        over: vec![dif(over)],
        ipcp: Some(ipcp.parse().unwrap()),
        via: None,
        auth: None,
        dialect: Default::default(),
        config: None,
    }
}

pub(crate) fn ipcp(house: &House, name: &str) -> IpcpInfo {
    let ipcps = house.control().ipcps().unwrap();
    let found = ipcps.into_iter().find(|ipcp| ipcp.name.as_str() == name);
    found.unwrap()
}

pub(crate) fn member(house: &House, name: &str) -> MemberInfo {
    ipcp(house, name).member.unwrap()
}

pub(crate) fn enrolled(house: &House, name: &str) {
    eventually_or(&format!("{name} is enrolled"), || {
        let info = member(house, name);
        match info.state {
            MemberState::Enrolled => Ok(()),
            _ => Err(format!("{info:?}")),
        }
    });
}

/// Waits until a house has a route to a member of a DIF, whose entries may still be spreading.
pub(crate) fn routed(house: &House, in_dif: &str, member: &str) {
    let path = format!("/members/{member}");
    eventually(&format!("{member} can be reached"), || {
        let objects = house.control().rib(Some(in_dif), None, &path, 0);
        objects.is_ok_and(|objects| objects[0].fields["is_reachable"] == true)
    });
}

/// Checks that the member reports a permanent refusal, and that an application that requests a flow
/// receives that refusal.
pub(crate) fn refused_for_good(house: &House, name: &str, words: &str) {
    eventually(&format!("{name} is refused for good"), || {
        let info = ipcp(house, name).member.unwrap();
        assert_eq!(info.state, MemberState::Joining, "{info:?}");
        info.is_final
    });
    let in_dif = ipcp(house, name).dif;
    let caller = house.conn();
    caller.ask_with(
        "anybody",
        Some(in_dif.as_str()),
        FlowSpec::reliable(),
        Mode::Ring,
    );
    let refusal = caller.error();
    assert!(refusal.is_final, "{refusal}");
    assert_eq!(refusal.code, ErrorCode::LinkDown);
    assert!(refusal.message.contains(words), "{refusal}");
}
