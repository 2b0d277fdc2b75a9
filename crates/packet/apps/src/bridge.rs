//! **bridge**: a learning bridge (IEEE 802.1Q §8.7 and §8.8, without VLANs and spanning tree).
//!
//! A frame goes to the port at which its destination was last seen as a source. A frame to a group
//! address or an unknown destination goes to all other ports. A frame whose destination is at the
//! port that it arrived from is dropped.
//!
//! - inputs, outputs: any names; an input and an output of the same name form one port. A port with
//!   only one of them only receives or only sends
//! - configuration: `age_s`: seconds after which an unused address is forgotten, 10 to 1000000
//!   (default: 300); `addresses`: most addresses to learn, 4 to 1048576 (default: 8192); `learn`:
//!   whether to learn addresses; `false` floods every frame (default: `true`)
//! - counters: `flooded`; `drop_same_port`; `drop_short`: frames without MAC addresses;
//!   `drop_no_frame`: copies for which the pool had no frame; `addresses_displaced`: learned
//!   addresses that were replaced by others
//! - cost: two look-ups in a table of sets of 4 (one to learn, one to find); a flooded frame is
//!   copied for each port but one

mod table;

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, PortNames, Ports};
use carina_time::Duration;
use serde::{Deserialize, Serialize};

use self::table::MacTable;

/// The configuration of the app `bridge`, which forwards frames by learned MAC addresses, as an
/// Ethernet switch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BridgeConfig {
    /// Time after which the bridge forgets an address from which no frame came, in seconds.
    pub age_s: u64,
    /// Largest number of MAC addresses that the bridge remembers.
    pub addresses: usize,
    /// Whether the bridge learns MAC addresses. If false, it sends every frame to all other ports.
    pub learn: bool,
}

impl Default for BridgeConfig {
    fn default() -> BridgeConfig {
        BridgeConfig {
            age_s: 300,
            addresses: 8192,
            learn: true,
        }
    }
}

/// The running app `bridge`: forwards frames by learned MAC addresses, as an Ethernet switch does.
pub struct Bridge {
    age: Duration,
    table: Option<MacTable>,
    /// The port of each input, and of each output, as an index of `names`.
    inputs: Vec<u16>,
    outputs: Vec<u16>,
    /// The output of each port; `None` if the port only receives.
    output_of: Vec<Option<usize>>,
    names: Vec<String>,
    pool: Pool,
    counters: Counters,
}

struct Counters {
    flooded: Counter,
    same_port: Counter,
    short: Counter,
    no_frame: Counter,
    displaced: Counter,
}

/// Why a configuration of the app `bridge` is invalid.
#[derive(Debug, thiserror::Error)]
enum BridgeError {
    #[error("age_s = {0}: must be 10 to 1000000")]
    Age(u64),
    #[error("addresses = {0}: must be 4 to 1048576")]
    Addresses(usize),
}

impl BridgeConfig {
    fn check_values(&self) -> Result<(), BridgeError> {
        if !(10..=1_000_000).contains(&self.age_s) {
            return Err(BridgeError::Age(self.age_s));
        }
        if !(4..=1 << 20).contains(&self.addresses) {
            return Err(BridgeError::Addresses(self.addresses));
        }
        Ok(())
    }
}

impl AppConfig for BridgeConfig {
    const KIND: &'static str = "bridge";
    const INPUTS: PortList = PortList::Any;
    const OUTPUTS: PortList = PortList::Any;

    type App = Bridge;

    fn check(&self) -> Result<(), AppError> {
        Ok(self.check_values()?)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Bridge, AppError> {
        Ok(Bridge {
            age: Duration::from_secs(self.age_s),
            table: self.learn.then(|| MacTable::new(self.addresses)),
            inputs: Vec::new(),
            outputs: Vec::new(),
            output_of: Vec::new(),
            names: Vec::new(),
            pool: context.pool().clone(),
            counters: Counters {
                flooded: context.counter("flooded"),
                same_port: context.counter("drop_same_port"),
                short: context.counter("drop_short"),
                no_frame: context.counter("drop_no_frame"),
                displaced: context.counter("addresses_displaced"),
            },
        })
    }

    fn can_apply(&self, old: &BridgeConfig) -> bool {
        self.addresses == old.addresses && self.learn == old.learn
    }

    fn apply(&self, app: &mut Bridge) {
        app.age = Duration::from_secs(self.age_s);
    }
}

impl FrameApp for Bridge {
    fn rewired(&mut self, ports: &PortNames<'_>) {
        // A port keeps its number as long as the app runs, so learned addresses stay valid.
        for name in ports.inputs.iter().chain(ports.outputs) {
            if !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
        let port_of = |name: &String| self.names.iter().position(|known| known == name);
        let numbers = |names: &[String]| -> Vec<u16> {
            let found = names.iter().filter_map(port_of);
            found.map(|port| port as u16).collect()
        };
        self.inputs = numbers(ports.inputs);
        self.outputs = numbers(ports.outputs);
        let output_of = |name: &String| ports.outputs.iter().position(|output| output == name);
        self.output_of = self.names.iter().map(output_of).collect();
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        for input in 0..ports.inputs() {
            ports.each(input, |frame, ports| {
                self.forward(self.inputs[input], frame, ports);
            });
        }
    }
}

impl Bridge {
    fn forward(&mut self, from: u16, frame: Frame, ports: &mut Ports<'_>) {
        let Some(head) = frame.bytes().first_chunk::<14>() else {
            return self.counters.short.add(1);
        };
        let (to, source) = (address(&head[..6]), address(&head[6..12]));
        let now = ports.now();
        let mut known = None;
        if let Some(table) = &mut self.table {
            // A group address is never learned as a source. (IEEE 802.1Q §8.7)
            if !is_group(source) && table.learn(source, from, now, self.age) {
                self.counters.displaced.add(1);
            }
            if !is_group(to) {
                known = table.find(to, now, self.age);
            }
        }
        match known {
            Some(port) if port == from => self.counters.same_port.add(1),
            Some(port) => match self.output_of[usize::from(port)] {
                Some(output) => ports.transmit(output, frame),
                None => self.flood(from, frame, ports),
            },
            None => self.flood(from, frame, ports),
        }
    }

    fn flood(&mut self, from: u16, frame: Frame, ports: &mut Ports<'_>) {
        self.counters.flooded.add(1);
        let is_other = |output: &usize| self.outputs[*output] != from;
        let mut others = (0..self.outputs.len()).filter(is_other);
        let Some(last) = others.next_back() else {
            return;
        };
        for output in others {
            match self.pool.copy_of(&frame) {
                Some(copy) => ports.transmit(output, copy),
                None => self.counters.no_frame.add(1),
            }
        }
        ports.transmit(last, frame);
    }
}

/// A MAC address as the lower 48 bits of a number, its first byte lowest.
fn address(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..6].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn is_group(address: u64) -> bool {
    address & 1 != 0
}
