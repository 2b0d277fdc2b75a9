//! A guest that has booted, with a client of the application in it.

use std::time::Duration;

use carina_api::AppName;
use carina_client::FlowSpec;
use carina_lab::{GuestSpec, TestGuest, TestNode};
use carina_measure::trial::target::Target;
use carina_vm::GuestImage;

use crate::Progress;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::peer::{app_name, client_of};

/// Boots a guest of `node`, and connects to the application `peer` in the guest.
///
/// # Errors
/// Something does not start; the error contains logs.
pub(crate) fn boot(
    image: &GuestImage,
    node: &mut TestNode,
    spec: GuestSpec,
    peer: &str,
    progress: Progress,
) -> Result<(TestGuest, Client)> {
    let guest = TestGuest::start(image, node, spec)?;
    let peer = app_name(peer)?;
    let ready = prepare_guest(&guest, node, &peer, progress);
    let target = Target {
        node: client_of(node)?,
        local: app_name("carina.bench")?,
        remote: peer.clone(),
        dif: None,
        spec: FlowSpec::reliable(),
        wait: REACH,
    };
    let opened = ready.and_then(|()| Client::open(target));
    let client = opened.map_err(|error| explain(error, &guest, node))?;
    progress.step(format!(
        "the VM's application {peer} is registered and reached"
    ));
    Ok((guest, client))
}

fn prepare_guest(
    guest: &TestGuest,
    node: &mut TestNode,
    peer: &AppName,
    progress: Progress,
) -> Result<()> {
    guest.wait_ready(BOOT)?;
    progress.step("the guest is up; starting the application in it");
    // The node in the guest may not be ready yet, so the application is restarted until it works.
    guest.run(&format!(
        "(while :; do carina bench-peer {peer} --wait 20s; sleep 0.2; done) </dev/null \
         >/tmp/peer.log 2>&1 &"
    ))?;
    Ok(node.wait_for_name(peer, BOOT)?)
}

/// Adds the last lines of logs to an error.
pub(crate) fn explain(error: Error, guest: &TestGuest, node: &TestNode) -> Error {
    error.with(format!("{}\n{}", node.logs(), guest.logs()))
}

/// How long the guest may take from power on until its application is registered. TCG is slow.
pub(crate) const BOOT: Duration = Duration::from_secs(180);

/// How long the application in the guest may take to be reachable again after a failed measurement.
const REACH: Duration = Duration::from_secs(30);
