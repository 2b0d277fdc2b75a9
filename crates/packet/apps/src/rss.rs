//! **rss**: balances load: distributes frames over outputs by class, weight and flow, as a network
//! card does over its queues (receive-side scaling).
//!
//! - inputs: `input`
//! - outputs: any names
//! - configuration: `classes`: a list; a frame belongs to the first class that it matches:
//!   - `filter`: a filter in libpcap's language, as for `pcap_filter`; `vlans`: a list of VLANs,
//!     compared with the outermost tag, which may be in the bytes or in the metadata. Both must
//!     match; a class without either matches all frames
//!   - `outputs`: names of outputs with their weights, 0 to 65535: `{ a = 1, b = 3 }`; an output
//!     with weight 0 gets no frames
//!   - `by`: `"flow"`: distribute by flow, as `split` does; `"addresses"`: distribute by source and
//!     destination IP address only, so that fragments go where whole packets go (default: `"flow"`)
//!   - `continue = true`: this class gets a copy, and the frame goes on to the next class
//! - counters: `drop_no_class`; `drop_no_link`: frames to an output without link; `missed`: copies
//!   for which the pool had no frame
//! - cost: the filters up to the matching class, and one hash over 8 to 44 bytes

use std::collections::BTreeMap;

use carina_filter::{Filter, FilterError};
use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, PortNames, Ports};
use carina_wire::ether::{TPID_CUSTOMER, VLAN_MAX};
use serde::{Deserialize, Serialize};

use crate::flow_hash::{address_hash, choice, flow_hash};
use crate::vlan::vlan_of;

/// The configuration of the app `rss`, which distributes frames over its outputs by class, weight
/// and flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RssConfig {
    /// The classes; a frame belongs to the first one that it matches.
    pub classes: Vec<ClassConfig>,
}

/// A class: frames that are distributed in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassConfig {
    /// Filter for the frames of this class; `None` accepts all.
    pub filter: Option<String>,
    /// VLANs of the frames of this class; `None` accepts all.
    pub vlans: Option<Vec<u16>>,
    /// Weight of each output, by the output's name: its share of the class's flows.
    pub outputs: BTreeMap<String, u16>,
    /// Whether frames of one flow, or frames between two addresses, go to the same output.
    #[serde(default)]
    pub by: RssBy,
    /// Whether the frame also continues to the next class; this class then gets a copy.
    #[serde(default, rename = "continue")]
    pub goes_on: bool,
}

/// Which frames a class of the app `rss` sends to the same output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RssBy {
    /// Frames of one flow: equal addresses, protocol and ports, as for `split`.
    #[default]
    Flow,
    /// Frames with equal source and destination IP addresses, so that fragments go where whole
    /// packets go.
    Addresses,
}

/// Why a configuration of the app `rss` is invalid.
#[derive(Debug, thiserror::Error)]
enum RssError {
    #[error(
        "classes is empty: give at least one; a class without filter and vlans matches all frames"
    )]
    NoClass,
    #[error("classes[{class}]: all outputs have weight 0: at least one weight must be above 0")]
    NoWeight { class: usize },
    #[error("classes[{class}]: filter: {error}")]
    Filter { class: usize, error: FilterError },
    #[error("classes[{class}]: vlans contains {vlan}: must be 0 to {VLAN_MAX}")]
    Vlan { class: usize, vlan: u16 },
}

/// The running app `rss`: distributes frames over its outputs by class, weight and flow.
pub struct Rss {
    classes: Vec<Class>,
    pool: Pool,
    no_class: Counter,
    no_link: Counter,
    missed: Counter,
}

struct Class {
    filter: Option<Filter>,
    vlans: Option<Vec<u16>>,
    by: RssBy,
    goes_on: bool,
    /// Each output, with the sum of all weights up to and including its own.
    shares: Vec<(usize, String)>,
    /// The port of each output; `None` without a link.
    output_of: Vec<Option<usize>>,
}

impl Class {
    fn new(number: usize, config: &ClassConfig) -> Result<Class, RssError> {
        let mut sum = 0;
        let mut shares = Vec::new();
        for (output, weight) in config.outputs.iter().filter(|(_, weight)| **weight > 0) {
            sum += usize::from(*weight);
            shares.push((sum, output.clone()));
        }
        let class = number + 1;
        if sum == 0 {
            return Err(RssError::NoWeight { class });
        }
        let mut vlans = config.vlans.iter().flatten();
        if let Some(vlan) = vlans.find(|vlan| **vlan > VLAN_MAX).copied() {
            return Err(RssError::Vlan { class, vlan });
        }
        let filter = config.filter.as_deref().map(Filter::compile).transpose();
        Ok(Class {
            filter: filter.map_err(|error| RssError::Filter { class, error })?,
            vlans: config.vlans.clone(),
            by: config.by,
            goes_on: config.goes_on,
            output_of: vec![None; shares.len()],
            shares,
        })
    }

    fn matches(&self, frame: &Frame) -> bool {
        let is_of_vlan = |vlans: &Vec<u16>| {
            let beside = frame.vlan().map(|control| control & 0x0fff);
            let vlan = beside.or_else(|| vlan_of(frame.bytes(), TPID_CUSTOMER));
            vlan.is_some_and(|vlan| vlans.contains(&vlan))
        };
        self.vlans.as_ref().is_none_or(is_of_vlan)
            && self
                .filter
                .as_ref()
                .is_none_or(|filter| filter.matches(frame.bytes()))
    }

    /// The port to which the class sends a frame; `None` if the chosen output has no link.
    fn output(&self, frame: &Frame) -> Option<usize> {
        let bytes = frame.bytes();
        let of_addresses = || {
            let tag = if vlan_of(bytes, TPID_CUSTOMER).is_some() {
                4
            } else {
                0
            };
            address_hash(bytes.get(14 + tag..)?)
        };
        let hash = match self.by {
            RssBy::Addresses => of_addresses(),
            RssBy::Flow => frame.hash(),
        };
        let hash = hash.unwrap_or_else(|| flow_hash(bytes));
        let total = self.shares.last().map_or(0, |(sum, _)| *sum);
        let point = choice(hash, total);
        let share = self.shares.partition_point(|(sum, _)| *sum <= point);
        self.output_of.get(share).copied().flatten()
    }
}

impl RssConfig {
    fn classes(&self) -> Result<Vec<Class>, RssError> {
        if self.classes.is_empty() {
            return Err(RssError::NoClass);
        }
        let classes = self.classes.iter().enumerate();
        classes
            .map(|(number, config)| Class::new(number, config))
            .collect()
    }
}

impl AppConfig for RssConfig {
    const KIND: &'static str = "rss";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Any;

    type App = Rss;

    fn check(&self) -> Result<(), AppError> {
        Ok(self.classes().map(drop)?)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Rss, AppError> {
        Ok(Rss {
            classes: self.classes()?,
            pool: context.pool().clone(),
            no_class: context.counter("drop_no_class"),
            no_link: context.counter("drop_no_link"),
            missed: context.counter("missed"),
        })
    }
}

impl FrameApp for Rss {
    fn rewired(&mut self, ports: &PortNames<'_>) {
        let port = |name: &String| ports.outputs.iter().position(|output| output == name);
        for class in &mut self.classes {
            class.output_of = class.shares.iter().map(|(_, name)| port(name)).collect();
        }
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        ports.each(0, |frame, ports| {
            let mut is_copied = false;
            for class in self.classes.iter().filter(|class| class.matches(&frame)) {
                let output = class.output(&frame);
                if !class.goes_on {
                    return match output {
                        Some(output) => ports.transmit(output, frame),
                        None => self.no_link.add(1),
                    };
                }
                is_copied = true;
                match (output, self.pool.copy_of(&frame)) {
                    (Some(output), Some(copy)) => ports.transmit(output, copy),
                    (None, _) => self.no_link.add(1),
                    (_, None) => self.missed.add(1),
                }
            }
            // A frame of which a copy was sent does not count as dropped.
            self.no_class.add(u64::from(!is_copied));
        });
    }
}

#[cfg(test)]
mod tests {
    use carina_frame::PoolConfig;

    use super::*;
    use crate::sample_packet::udp_packet;

    fn class(text: &str) -> Result<Class, String> {
        let config: ClassConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        Class::new(0, &config).map_err(|error| error.to_string())
    }

    #[test]
    fn outputs_get_flows_by_their_weights() {
        let mut class = class("outputs = { a = 1, b = 0, c = 3 }").unwrap();
        assert_eq!(class.shares.len(), 2);
        class.output_of = vec![Some(0), Some(1)];
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let mut counts = [0; 2];
        let mut packet = udp_packet(100);
        for port in 0..4000_u16 {
            packet[34..36].copy_from_slice(&port.to_be_bytes());
            let frame = pool.frame_of(&packet).unwrap();
            counts[class.output(&frame).unwrap()] += 1;
        }
        assert!((800..1200).contains(&counts[0]), "{counts:?}");
        class.by = RssBy::Addresses;
        let mut outputs = (0..100_u16).map(|port| {
            packet[34..36].copy_from_slice(&port.to_be_bytes());
            class.output(&pool.frame_of(&packet).unwrap())
        });
        let first = outputs.next();
        assert!(outputs.all(|output| Some(output) == first));
    }

    #[test]
    fn wrong_classes_are_refused_with_what_would_be_right() {
        for (text, words) in [
            ("outputs = {}", "classes[1]: all outputs have weight 0"),
            ("outputs = { a = 0 }", "must be above 0"),
            (
                "outputs = { a = 1 }\nvlans = [1, 4095]",
                "vlans contains 4095: must be 0 to 4094",
            ),
            (
                "outputs = { a = 1 }\nfilter = \"port 70000\"",
                "classes[1]: filter: character 6",
            ),
            ("outputs = { a = 70000 }", "u16"),
        ] {
            let error = class(text).err().unwrap();
            assert!(error.contains(words), "{error}");
        }
        let error = RssConfig {
            classes: Vec::new(),
        }
        .classes()
        .err()
        .unwrap();
        assert!(error.to_string().contains("classes is empty"));
    }
}
