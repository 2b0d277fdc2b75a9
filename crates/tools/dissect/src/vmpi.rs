//! Dissects records of the VMPI.

use std::collections::HashMap;

use carina_wire::FlowSpec;
use carina_wire::pcapng::Direction;
use carina_wire::vmpi::{Channel, Control, DataHeader, HEADER_BYTES, Hello, Outcome};

use super::layer::{Layer, cut_short, printable, show_bytes};
use super::{Settings, pdu};

/// For each interface, direction and channel on which an SDU is incomplete: the number of bytes so
/// far.
#[derive(Default)]
pub(super) struct Pieces {
    open: HashMap<(u32, Direction, Channel), usize>,
}

impl Pieces {
    /// Adds the layers of a record.
    pub(super) fn dissect(
        &mut self,
        layers: &mut Vec<Layer>,
        settings: &Settings,
        (interface, direction): (u32, Direction),
        record: &[u8],
        original: usize,
    ) {
        let header = record.first_chunk().map(|bytes| DataHeader::decode(*bytes));
        let header = match header {
            Some(Ok(header)) => header,
            Some(Err(error)) => {
                return layers.push(Layer::new("vmpi", format!("malformed: {error}")));
            }
            None if record.len() < original => {
                return layers.push(Layer::new("vmpi", cut_short(record.len(), original)));
            }
            None => return layers.push(Layer::new("vmpi", "malformed: no header")),
        };
        let (payload, original) = (&record[HEADER_BYTES..], original - HEADER_BYTES);
        let channel = header.channel;
        if channel.is_control() {
            return layers.push(control(payload, original));
        }
        let key = (interface, direction, channel);
        let before = self.open.remove(&key).unwrap_or(0);
        let sdu_bytes = before + original;
        let mut layer = Layer::new("vmpi", format!("channel {channel}"));
        layer.field("channel", channel.number());
        layer.field("piece_bytes", original);
        layer.field("offset", before);
        layer.field("more", header.more);
        if header.more {
            self.open.insert(key, sdu_bytes);
            layer.summary += &format!(" piece of {original} bytes at {before}, more follows");
        } else if before > 0 {
            layer.summary += &format!(" last piece, of an SDU of {sdu_bytes} bytes");
        }
        let is_whole = !header.more && before == 0;
        if !is_whole {
            layer.field("content", show_bytes(payload));
        }
        layers.push(layer);
        if is_whole {
            pdu::guess(layers, settings, payload, original);
        }
    }
}

fn control(payload: &[u8], original: usize) -> Layer {
    let mut layer = Layer::new("vmpi", String::new());
    layer.field("channel", 0);
    let gist = match Control::decode(payload) {
        Err(_) if payload.len() < original => {
            let part = cut_short(payload.len(), original);
            format!("control message, {part}")
        }
        Err(error) => format!("malformed control message: {error}"),
        Ok(Control::Hello(hello)) => hello_fields(&mut layer, &hello),
        Ok(Control::Register { name }) => {
            layer.field("message", "register");
            layer.field("name", name);
            format!("REGISTER {name}")
        }
        Ok(Control::Unregister { name }) => {
            layer.field("message", "unregister");
            layer.field("name", name);
            format!("UNREGISTER {name}")
        }
        Ok(of_flow) => flow_fields(&mut layer, &of_flow),
    };
    layer.summary = printable(gist);
    layer
}

/// Adds the fields of a control message about one flow. Returns a summary.
fn flow_fields(layer: &mut Layer, message: &Control<'_>) -> String {
    let (word, channel, gist) = match *message {
        Control::Allocate {
            channel,
            window_bytes,
            spec,
            source,
            destination,
        } => {
            layer.field("window_bytes", window_bytes);
            layer.field("source", source);
            layer.field("destination", destination);
            layer.field("spec", show_spec(&spec));
            ("allocate", channel, format!("{source} > {destination}"))
        }
        Control::AllocateResponse {
            channel,
            window_bytes,
            outcome,
            reason,
        } => {
            layer.field("window_bytes", window_bytes);
            layer.field("outcome", show_outcome(outcome));
            layer.text("reason", reason);
            let gist = show_outcome(outcome).to_owned();
            ("allocate_response", channel, gist)
        }
        Control::Deallocate { channel, reason } => {
            layer.text("reason", reason);
            ("deallocate", channel, reason.to_owned())
        }
        Control::Credit {
            channel,
            limit_bytes,
        } => {
            layer.field("limit_bytes", limit_bytes);
            ("credit", channel, format!("up to {limit_bytes} bytes"))
        }
        Control::Hello(_) | Control::Register { .. } | Control::Unregister { .. } => {
            return String::new();
        }
    };
    layer.field("message", word);
    layer.field("of_channel", channel.number());
    let gist = format!("{} channel {channel} {gist}", word.to_uppercase());
    gist.trim_end().to_owned()
}

fn hello_fields(layer: &mut Layer, hello: &Hello<'_>) -> String {
    layer.field("message", "hello");
    layer.field("sdu_bytes_max", hello.sdu_bytes_max);
    layer.field("piece_bytes_max", hello.piece_bytes_max);
    layer.field("channels_max", hello.channels_max);
    layer.field("bundle_bytes_max", hello.bundle_bytes_max);
    layer.field("name", hello.name);
    format!("HELLO {}", hello.name)
}

fn show_outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted => "accepted",
        Outcome::Refused => "refused",
        Outcome::UnknownName => "unknown name",
        Outcome::SpecNotMet => "specification not met",
        Outcome::NoResources => "no resources",
    }
}

fn show_spec(spec: &FlowSpec) -> String {
    let mut words = Vec::new();
    if spec.max_sdu_gap != u64::MAX {
        words.push(format!("gap {}", spec.max_sdu_gap));
    }
    if spec.max_loss < FlowSpec::MAX_LOSS {
        words.push(format!("loss {}/10000", spec.max_loss));
    }
    for (name, value) in [
        ("delay us", u64::from(spec.max_delay_us)),
        ("jitter us", u64::from(spec.max_jitter_us)),
        ("bandwidth bit/s", spec.avg_bandwidth_bps),
    ] {
        if value != 0 {
            words.push(format!("{name} {value}"));
        }
    }
    if spec.in_order {
        words.push("in order".to_owned());
    }
    words.push(
        if spec.msg_boundaries {
            "messages"
        } else {
            "stream"
        }
        .to_owned(),
    );
    words.join(", ")
}
