//! Builds the report of an access point from its register, its peers and the engine's counters.

use std::collections::BTreeMap;
use std::path::Path;

use carina_frame_engine::counter_file;
use carina_vnet::access::{AccessReport, UserReport};
use carina_vnet_access::access_point::PeerSeen;
use carina_vnet_access::key::PublicKey;
use carina_vnet_access::register::Register;

use crate::names::access_app;

/// The report of an access point.
pub(super) fn of(
    register: &Register,
    link: u32,
    port: u16,
    seen: &BTreeMap<PublicKey, PeerSeen>,
    counters: &Path,
) -> AccessReport {
    let users = register.users().map(|(user, address, session)| {
        let seen = session.and_then(|session| seen.get(&session.key)).cloned();
        let seen = seen.unwrap_or_default();
        UserReport {
            user: user.to_owned(),
            address,
            until: session.map(|session| session.until),
            rights: session
                .map(|session| session.rights.clone())
                .unwrap_or_default(),
            from: seen.from,
            handshake_s: seen.handshake_s,
            sent_bytes: seen.sent_bytes,
            received_bytes: seen.received_bytes,
        }
    });
    // Without a counter file nothing was discarded yet.
    let readings = counter_file::read(counters).unwrap_or_default();
    let own = format!("{}/", access_app(link));
    let discarded = readings.iter().filter_map(|reading| {
        let name = reading.name.strip_prefix(&own)?.strip_prefix("drop_")?;
        (reading.value > 0).then(|| (name.to_owned(), reading.value))
    });
    AccessReport {
        access: register.facts().access.clone(),
        link,
        port,
        users: users.collect(),
        discarded: discarded.collect(),
    }
}
