//! Members of DIFs as a node tells of them.

use carina_api::control::{IpcpInfo, MemberInfo, MemberState};

use super::{House, eventually_or};

pub fn ipcp(house: &House, name: &str) -> IpcpInfo {
    let ipcps = house.control().ipcps().unwrap();
    let found = ipcps.into_iter().find(|ipcp| ipcp.name.as_str() == name);
    found.unwrap()
}

pub fn member(house: &House, name: &str) -> MemberInfo {
    ipcp(house, name).member.unwrap()
}

pub fn enrolled(house: &House, name: &str) {
    eventually_or(&format!("{name} is enrolled"), || {
        let info = member(house, name);
        match info.state {
            MemberState::Enrolled => Ok(()),
            _ => Err(format!("{info:?}")),
        }
    });
}
