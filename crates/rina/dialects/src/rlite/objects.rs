//! Names and classes of rlite's objects.

/// Object names.
pub(super) mod name {
    pub(crate) const ENROLLMENT: &str = "/mgmt/enrollment";
    pub(crate) const LOWER_FLOW: &str = "/mgmt/lowerflow";
    pub(crate) const STATUS: &str = "/mgmt/operational_status";
    pub(crate) const KEEPALIVE: &str = "/mgmt/keepalive";
    pub(crate) const NEIGHBOURS: &str = "/mgmt/neighbors/entries";
    pub(crate) const DIRECTORY: &str = "/mgmt/dft/table";
    pub(crate) const ROUTING: &str = "/mgmt/routing/routing";
    pub(crate) const ADDRESSES: &str = "/mgmt/addralloc/table";
    pub(crate) const FLOWS: &str = "/mgmt/flowalloc/flows";
    pub(crate) const A_DATA: &str = "/a_data";
}

/// Object classes.
pub(super) mod class {
    pub(crate) const ENROLLMENT: &str = "enrollment";
    pub(crate) const LOWER_FLOW: &str = "lowerflow";
    pub(crate) const STATUS: &str = "operational_status";
    pub(crate) const KEEPALIVE: &str = "keepalive";
    pub(crate) const NEIGHBOURS: &str = "neigh_entries";
    pub(crate) const DIRECTORY: &str = "dft_entries";
    pub(crate) const ROUTING: &str = "lfdb_entries";
    pub(crate) const ADDRESSES: &str = "aa_entries";
    pub(crate) const ADDRESS_WANTED: &str = "aareq";
    pub(crate) const FLOW: &str = "flow";
    pub(crate) const POLICY: &str = "policy";
    pub(crate) const A_DATA: &str = "a_data";
}

/// Parses the name of an object that an enroller writes, `/mgmt/COMPONENT/policy` or
/// `/mgmt/COMPONENT/params`: returns the component, and whether it is a policy or a parameter.
pub(super) fn component_of(name: &str) -> Option<(&str, PolicyObject)> {
    let (component, what) = name.strip_prefix("/mgmt/")?.split_once('/')?;
    match what {
        "policy" => Some((component, PolicyObject::Policy)),
        "params" => Some((component, PolicyObject::Parameter)),
        _ => None,
    }
}

/// What an enroller writes for a component: its policy or a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyObject {
    Policy,
    Parameter,
}

/// Object name of a flow; `port` is the port-id at the receiver of the message.
pub(super) fn flow_name(port: u64) -> alloc::string::String {
    alloc::format!("{}/{port}", name::FLOWS)
}

/// Parses the port-id in the object name of a flow.
pub(super) fn port_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(name::FLOWS)?.strip_prefix('/')?;
    digits.parse().ok()
}
