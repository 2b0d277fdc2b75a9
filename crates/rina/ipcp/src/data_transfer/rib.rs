//! State and counters as RIB objects.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_wire::Payload;

use super::DataPath;
use super::port::Port;
use crate::api::{RibObject, Scalar};
use crate::data_transfer::api::Owner;

impl<P: Payload> DataPath<P> {
    pub(super) fn describe(&self, out: &mut Vec<RibObject>) {
        out.push(self.counters_object());
        for (cep, instance) in self
            .connections
            .flows
            .iter()
            .chain(self.connections.channels.iter())
        {
            let mut fields = Fields::default();
            match instance.owner {
                Owner::Flow(key) => fields.uint("flow", u64::from(key.0)),
                Owner::Channel(channel) => fields.uint("channel", u64::from(channel)),
            }
            fields.uint("cube", u64::from(instance.qos.0));
            fields.uint("remote-address", instance.remote.0);
            fields.uint("remote-cep", u64::from(instance.remote_cep.0));
            let efcp = instance.efcp.counters();
            fields.uint("sent", efcp.sent);
            fields.uint("sent-again", efcp.retransmitted);
            fields.uint("received", efcp.received);
            fields.uint("delivered", efcp.delivered);
            fields.uint("given-up", efcp.given_up);
            fields.uint("timeouts", efcp.timeouts);
            for (reason, count) in efcp.discards().filter(|(_, count)| *count > 0) {
                fields.uint(&format!("discarded-{}", reason.label()), count);
            }
            out.push(fields.object(format!("/data-transfer/connections/{cep}"), "connection"));
        }
        for port in self.rmt.ports() {
            out.push(port_object(port, self.rmt.table.neighbour_of(port.n1.0)));
        }
        for (dst, route, entry) in self.rmt.table.in_order() {
            let mut fields = Fields::default();
            let list = |addresses: &[carina_wire::dif::Address]| {
                addresses.iter().map(ToString::to_string).collect()
            };
            if let Some(route) = route {
                fields.list("next", list(&route.next));
                fields.list("alternates", list(&route.alternates));
            }
            let ports = entry.next_hops.iter().flatten();
            fields.list("n1", ports.map(ToString::to_string).collect());
            out.push(fields.object(format!("/data-transfer/forwarding/{dst}"), "forwarding"));
        }
    }

    fn counters_object(&self) -> RibObject {
        let counters = self.counters();
        let mut fields = Fields::default();
        fields.uint("sdus-written", counters.sdus_written);
        fields.uint("sdus-delivered", counters.sdus_delivered);
        fields.uint("pdus-received", counters.pdus_received);
        fields.uint("bytes-received", counters.bytes_received);
        fields.uint("pdus-sent", counters.pdus_sent);
        fields.uint("bytes-sent", counters.bytes_sent);
        fields.uint("pdus-relayed", counters.pdus_relayed);
        fields.uint("pdus-looped", counters.pdus_looped);
        fields.uint("pdus-marked", counters.pdus_marked);
        fields.uint("pdus-moved", counters.pdus_moved);
        fields.uint("flows", self.flow_ios.flow_count() as u64);
        fields.uint("connections", self.connections.flows.len() as u64);
        fields.uint("channels", self.connections.channels.len() as u64);
        for (reason, count) in counters.drops() {
            fields.uint(&format!("dropped-{}", reason.name()), count);
        }
        fields.object("/counters".to_string(), "counters")
    }
}

fn port_object<P: Payload>(
    port: &Port<P>,
    neighbour: Option<carina_wire::dif::Address>,
) -> RibObject {
    let mut fields = Fields::default();
    fields.text("dif", &port.props.dif);
    fields.text("remote", &port.props.remote);
    if let Some(neighbour) = neighbour {
        fields.uint("neighbour", neighbour.0);
    }
    fields.uint("sdu-max", port.props.sdu_max as u64);
    fields.flag("protected", port.protection.is_some());
    fields.flag("blocked", port.is_blocked);
    let (pdus, bytes) = port.depth();
    fields.uint("queued-pdus", pdus);
    fields.uint("queued-bytes", bytes);
    for class in port.classes().iter().filter(|class| class.pdus > 0) {
        fields.uint(
            &format!("queued-pdus-cube-{}", class.qos),
            u64::from(class.pdus),
        );
    }
    fields.uint("sent-pdus", port.sent.0);
    fields.uint("sent-bytes", port.sent.1);
    fields.uint("received-pdus", port.received.0);
    fields.uint("received-bytes", port.received.1);
    fields.uint("dropped-pdus", port.dropped);
    fields.object(format!("/data-transfer/n1/{}", port.n1.0), "n1-flow")
}

/// Collects the fields of one object.
#[derive(Default)]
struct Fields(Vec<(String, Scalar)>);

impl Fields {
    fn uint(&mut self, name: &str, value: u64) {
        self.0.push((name.to_string(), Scalar::Uint(value)));
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.0.push((name.to_string(), Scalar::Bool(value)));
    }

    fn text(&mut self, name: &str, value: &str) {
        self.0
            .push((name.to_string(), Scalar::Text(value.to_string())));
    }

    fn list(&mut self, name: &str, value: Vec<String>) {
        self.0.push((name.to_string(), Scalar::List(value)));
    }

    fn object(self, path: String, class: &str) -> RibObject {
        RibObject {
            path,
            class: class.to_string(),
            fields: self.0,
        }
    }
}
