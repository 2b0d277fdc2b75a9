//! An app that counts frames and bytes by Ethertype, as `examples/lua/count.lua` does.

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};

/// Configuration of the app.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CountConfig {}

/// The app. It counts packets and bytes of IPv4, IPv6, ARP and other frames.
pub(super) struct Count([[Counter; 2]; 4]);

impl AppConfig for CountConfig {
    const KIND: &'static str = "count";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = Count;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Count, AppError> {
        let counter = |name, what| context.counter(&format!("{name}_{what}"));
        let names = ["ipv4", "ipv6", "arp", "other"];
        Ok(Count(names.map(|name| {
            ["packets", "bytes"].map(|what| counter(name, what))
        })))
    }
}

impl FrameApp for Count {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let counters = &self.0;
        ports.forward(0, 0, |frame| {
            let kind = match frame.bytes().get(12..14) {
                Some([0x08, 0x00]) => 0,
                Some([0x86, 0xdd]) => 1,
                Some([0x08, 0x06]) => 2,
                _ => 3,
            };
            counters[kind][0].add(1);
            counters[kind][1].add(frame.len() as u64);
            true
        });
    }
}
