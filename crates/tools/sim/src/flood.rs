//! A member that is far simpler than an IPCP, with which the simulator itself is tested. It sends
//! every PDU to all neighbours, once.
//!
//! It works on links without loss, and its failures show on other links. Its header is text:
//!
//! ```text
//!   number of the PDU, destination name, kind, flow of the sender, flow of the receiver | content
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use carina_ipcp::{
    AllocateError, Command, Config, CreateError, Delivery, DifConfig, Event, FlowKey, N1Port,
};
use carina_wire::dif::{Address, Dialect};
use carina_wire::{Bytes, FlowSpec};

use crate::member::Member;

pub(crate) struct Flood {
    name: String,
    seed: u64,
    count: u64,
    is_member: bool,
    apps: BTreeSet<String>,
    seen: BTreeSet<u64>,
    n1s: BTreeMap<N1Port, VecDeque<Vec<u8>>>,
    blocked: BTreeSet<N1Port>,
    flows: BTreeMap<u32, Peer>,
    events: VecDeque<Event>,
    deliveries: VecDeque<Delivery<Bytes>>,
    next_flow: u32,
}

struct Peer {
    name: String,
    flow: u32,
    asked: Option<String>,
}

impl Flood {
    pub(crate) fn member(config: Config, seed: u64) -> Result<Box<dyn Member>, CreateError> {
        Ok(Box::new(Flood {
            name: config.name,
            seed,
            count: 0,
            is_member: false,
            apps: BTreeSet::new(),
            seen: BTreeSet::new(),
            n1s: BTreeMap::new(),
            blocked: BTreeSet::new(),
            flows: BTreeMap::new(),
            events: VecDeque::new(),
            deliveries: VecDeque::new(),
            next_flow: 0,
        }))
    }

    fn join(&mut self) {
        if !std::mem::replace(&mut self.is_member, true) {
            self.events.push_back(Event::Enrolled {
                address: Address(self.seed),
                config: DifConfig::default(),
            });
        }
        self.say("*", "hello", [0, 0], &[]);
    }

    fn say(&mut self, to: &str, kind: &str, flows: [u32; 2], content: &[u8]) {
        self.count += 1;
        let number = self.seed.wrapping_add(self.count);
        let [mine, theirs] = flows;
        let head = format!("{number} {} {to} {kind} {mine} {theirs}|", self.name);
        let mut pdu = head.into_bytes();
        pdu.extend_from_slice(content);
        self.seen.insert(number);
        self.spread(&pdu);
    }

    fn spread(&mut self, pdu: &[u8]) {
        for queue in self.n1s.values_mut() {
            queue.push_back(pdu.to_vec());
        }
    }

    fn hear(&mut self, pdu: &[u8]) -> Option<()> {
        let bar = pdu.iter().position(|byte| *byte == b'|')?;
        let head = str::from_utf8(&pdu[..bar]).ok()?;
        let words: Vec<&str> = head.split(' ').collect();
        let [number, from, to, kind, theirs, mine] = words[..] else {
            return None;
        };
        if !self.seen.insert(number.parse().ok()?) {
            return None;
        }
        if self.is_member {
            self.spread(pdu);
        }
        let (theirs, mine): (u32, u32) = (theirs.parse().ok()?, mine.parse().ok()?);
        let content = &pdu[bar + 1..];
        match kind {
            "hello" if !self.is_member => self.join(),
            "ask" => {
                let names = String::from_utf8_lossy(content).into_owned();
                let (local, remote) = names.split_once(' ')?;
                if self.apps.contains(local) {
                    let flow = self.peer(from, theirs, None);
                    self.events.push_back(Event::Incoming {
                        flow: FlowKey(flow),
                        local: local.to_owned(),
                        remote: remote.to_owned(),
                        spec: FlowSpec::default(),
                    });
                }
            }
            _ if to != self.name => {}
            "yes" => {
                self.flows.get_mut(&mine)?.flow = theirs;
                self.flows.get_mut(&mine)?.name = from.to_owned();
                let flow = FlowKey(mine);
                let result = Ok(());
                self.events.push_back(Event::Allocated { flow, result });
            }
            "no" => {
                self.flows.remove(&mine)?;
                let flow = FlowKey(mine);
                let result = Err("refused".into());
                self.events.push_back(Event::Allocated { flow, result });
            }
            "more" | "sdu" => self.deliveries.push_back(Delivery {
                flow: FlowKey(mine),
                sdu: Bytes::from(content.to_vec()),
                more: kind == "more",
            }),
            "bye" => {
                self.flows.remove(&mine)?;
                self.events.push_back(Event::Closed {
                    flow: FlowKey(mine),
                    is_graceful: true,
                    reason: String::new(),
                });
            }
            _ => {}
        }
        Some(())
    }

    fn peer(&mut self, name: &str, flow: u32, asked: Option<String>) -> u32 {
        let key = self.next_flow;
        self.next_flow += 1;
        let name = name.to_owned();
        self.flows.insert(key, Peer { name, flow, asked });
        key
    }

    fn send(&mut self, key: FlowKey, kind: &str, content: &[u8]) {
        if let Some(peer) = self.flows.get(&key.0) {
            let (name, flow) = (peer.name.clone(), peer.flow);
            self.say(&name, kind, [key.0, flow], content);
        }
    }
}

impl Member for Flood {
    fn handle(&mut self, _now: u64, command: Command) {
        match command {
            Command::Bootstrap => self.join(),
            Command::N1Up { n1, .. } => {
                self.n1s.insert(n1, VecDeque::new());
                self.blocked.remove(&n1);
                if self.is_member {
                    self.say("*", "hello", [0, 0], &[]);
                }
            }
            Command::N1Down { n1, .. } => drop(self.n1s.remove(&n1)),
            Command::Register { name } => drop(self.apps.insert(name)),
            Command::Respond { flow, answer } => {
                let kind = if answer.is_ok() { "yes" } else { "no" };
                self.send(flow, kind, &[]);
                if answer.is_err() {
                    self.flows.remove(&flow.0);
                }
            }
            Command::Deallocate { flow, .. } => {
                self.send(flow, "bye", &[]);
                self.flows.remove(&flow.0);
            }
            _ => {}
        }
    }

    fn allocate(
        &mut self,
        _now: u64,
        local: &str,
        remote: &str,
        _spec: FlowSpec,
    ) -> Result<FlowKey, AllocateError> {
        let key = self.peer("", 0, Some(remote.to_owned()));
        self.say("*", "ask", [key, 0], format!("{remote} {local}").as_bytes());
        Ok(FlowKey(key))
    }

    fn on_pdu(&mut self, _now: u64, _n1: N1Port, pdu: Bytes) {
        self.hear(pdu.as_slice());
    }

    fn on_sdu(&mut self, _now: u64, flow: FlowKey, sdu: Bytes, more: bool) {
        let mut chunks = sdu.as_slice().chunks(1_200).peekable();
        if chunks.peek().is_none() {
            self.send(flow, if more { "more" } else { "sdu" }, &[]);
        }
        while let Some(chunk) = chunks.next() {
            let kind = if more || chunks.peek().is_some() {
                "more"
            } else {
                "sdu"
            };
            self.send(flow, kind, chunk);
        }
    }

    fn room(&mut self, flow: FlowKey) -> usize {
        let is_asking = |peer: &Peer| peer.asked.is_some() && peer.name.is_empty();
        match self.flows.get(&flow.0) {
            Some(peer) if !is_asking(peer) => 64 * 1024,
            _ => 0,
        }
    }

    fn poll_room(&mut self) -> Option<FlowKey> {
        None
    }

    fn set_delivery_room(&mut self, _now: u64, _flow: FlowKey, _bytes: usize) {}

    fn poll_deliver(&mut self) -> Option<Delivery<Bytes>> {
        self.deliveries.pop_front()
    }

    fn poll_n1(&mut self) -> Option<N1Port> {
        let ready =
            |(n1, queue): &(&N1Port, &VecDeque<_>)| !queue.is_empty() && !self.blocked.contains(n1);
        self.n1s.iter().find(ready).map(|(n1, _)| *n1)
    }

    fn peek_transmit(&mut self, n1: N1Port) -> Option<usize> {
        Some(self.n1s.get(&n1)?.front()?.len())
    }

    fn take_transmit(&mut self, _now: u64, n1: N1Port) -> Option<Bytes> {
        Some(Bytes::from(self.n1s.get_mut(&n1)?.pop_front()?))
    }

    fn block_n1(&mut self, n1: N1Port) {
        self.blocked.insert(n1);
    }

    fn unblock_n1(&mut self, n1: N1Port) {
        self.blocked.remove(&n1);
    }

    fn end_of_burst(&mut self, _now: u64) {}

    fn handle_timeout(&mut self, _now: u64) {}

    fn poll_timeout(&mut self) -> Option<u64> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Profile;
    use crate::model::{Attachment, Below, SlotId};
    use crate::session::{Ending, FlowRequest, Reader};
    use crate::stream::Lengths;
    use crate::world::World;

    fn config(dif: &str, name: &str) -> Config {
        Config {
            name: name.to_owned(),
            dif: dif.to_owned(),
            dialect: Dialect::Native,
            dif_config: Some(DifConfig::default()),
        }
    }

    /// Three systems in a line, one DIF over the cables and one over that.
    fn line(seed: u64, profile: Profile) -> (World, Vec<SlotId>) {
        let mut world = World::new(seed, Box::new(Flood::member));
        let systems = ["a", "b", "c"].map(|name| world.add_system(name));
        let now = world.now();
        let low = [0, 1, 2].map(|at| {
            world.add_slot(
                systems[at],
                config("low", &format!("low{at}")),
                at == 0,
                now,
            )
        });
        for at in 1..3 {
            let cable = world.add_cable([systems[at - 1], systems[at]], profile, None);
            world.attach(
                low[at],
                Attachment {
                    below: Below::Cable(cable),
                    remote: format!("low{}", at - 1),
                    is_initiator: true,
                    is_reliable: true,
                },
            );
        }
        let high = [0, 2].map(|at| {
            world.add_slot(
                systems[at],
                config("high", &format!("high{at}")),
                at == 0,
                now,
            )
        });
        for (at, other) in [(0, 2), (1, 0)] {
            world.attach(
                high[at],
                Attachment {
                    below: Below::Ipcp(low[2 * at]),
                    remote: format!("high{other}"),
                    is_initiator: at == 1,
                    is_reliable: true,
                },
            );
        }
        world.add_app(high[0], "server");
        (world, high.to_vec())
    }

    fn run(seed: u64, profile: Profile) -> World {
        let (mut world, high) = line(seed, profile);
        world.run_for(5_000_000_000);
        let called = world.call(FlowRequest {
            from: high[1],
            to: "server".into(),
            spec: FlowSpec::reliable(),
            sdus: [20, 20],
            lengths: Lengths::Mixed(100_000),
            pause_ns: 1_000_000,
            readers: [Reader::eager(); 2],
            ending: Ending::WhenDone,
            is_refused: false,
        });
        assert_eq!(called, Some(0));
        world.run_for(20_000_000_000);
        world
    }

    #[test]
    fn stacked_difs_carry_a_session_to_its_end() {
        let world = run(1, Profile::clean());
        assert_eq!(world.failures(), [""; 0]);
        assert!(!world.is_busy(0));
        assert!(
            world.sessions[0]
                .streams
                .iter()
                .all(|s| s.is_written() && s.is_complete())
        );
        assert_eq!(world.tallies().sdus, 40);
    }

    #[test]
    fn same_seed_is_the_same_run_and_another_is_not() {
        let hash = |seed| {
            let profile = Profile {
                jitter_ns: 300_000,
                rate_bps: 50_000_000,
                queue_bytes: 20_000,
                ..Profile::clean()
            };
            run(seed, profile).trace().hash()
        };
        assert_eq!(hash(5), hash(5));
        assert_ne!(hash(5), hash(6));
    }

    #[test]
    fn member_that_loses_doubles_or_damages_sdus_is_found_out() {
        let wrong = |change: fn(&mut Profile)| {
            let mut profile = Profile::clean();
            change(&mut profile);
            (1..20).any(|seed| !run(seed, profile).failures().is_empty())
        };
        assert!(wrong(|profile| profile.loss = 200));
        assert!(wrong(|profile| profile.corruption = 200));
        assert!(wrong(|profile| profile.reorder = 500));
    }
}
