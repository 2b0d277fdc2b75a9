//! A simulated network of members that exchange messages.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::api::Routing;
use crate::message::{Address, Message};
use crate::policy::make;
use carina_time::Instant;

pub(super) const MILLI: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1000 * MILLI;

/// Members with addresses from 1. Every message takes a millisecond, and messages stay in order.
pub(super) struct Network {
    pub now: u64,
    pub members: BTreeMap<Address, Box<dyn Routing>>,
    links: BTreeMap<(Address, Address), VecDeque<(u64, Message)>>,
    pub messages: usize,
    pub objects: usize,
}

impl Network {
    pub(super) fn new(members: u64, params: &[(&str, &str)]) -> Network {
        let params: BTreeMap<String, String> = params
            .iter()
            .map(|(name, value)| (String::from(*name), String::from(*value)))
            .collect();
        let mut network = Network {
            now: SECOND,
            members: BTreeMap::new(),
            links: BTreeMap::new(),
            messages: 0,
            objects: 0,
        };
        for address in 1..=members {
            let mut routing = make("link-state", &params).expect("good parameters");
            routing.set_own(
                Instant::from_nanos(network.now),
                address,
                &format!("m{address}"),
            );
            network.members.insert(address, routing);
        }
        network
    }

    pub(super) fn up(&mut self, a: Address, b: Address, cost: u32) {
        for (from, to) in [(a, b), (b, a)] {
            self.links.entry((from, to)).or_default();
            self.member(from).handle_link_up_at(to, cost);
        }
    }

    pub(super) fn down(&mut self, a: Address, b: Address) {
        for (from, to) in [(a, b), (b, a)] {
            self.links.remove(&(from, to));
            self.member(from).handle_link_down_at(to);
        }
    }

    /// Takes the link down. Only `a` notices, because `b` no longer exists.
    pub(super) fn down_one_sided(&mut self, a: Address, b: Address) {
        self.links.remove(&(a, b));
        self.links.remove(&(b, a));
        self.member(a).handle_link_down_at(b);
    }

    fn member(&mut self, address: Address) -> Member<'_> {
        let now = self.now;
        let routing = self.members.get_mut(&address).expect("a member");
        Member { now, routing }
    }

    /// Runs the simulation for `span`.
    pub(super) fn run(&mut self, span: u64) {
        let end = self.now + span;
        loop {
            self.collect();
            let timers = self
                .members
                .values()
                .filter_map(|member| Some(member.poll_timeout()?.as_nanos()));
            let arrivals = self.links.values().filter_map(|queue| queue.front());
            let next = timers.chain(arrivals.map(|(at, _)| *at)).min();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            self.deliver();
            for member in self.members.values_mut() {
                if member
                    .poll_timeout()
                    .is_some_and(|at| at <= Instant::from_nanos(self.now))
                {
                    member.handle_timeout(Instant::from_nanos(self.now));
                }
            }
        }
    }

    fn collect(&mut self) {
        for (from, member) in &mut self.members {
            while let Some((to, message)) = member.poll_message(Instant::from_nanos(self.now)) {
                self.messages += 1;
                if let Message::Objects(objects) = &message {
                    self.objects += objects.len();
                }
                if let Some(queue) = self.links.get_mut(&(*from, to)) {
                    queue.push_back((self.now + MILLI, message));
                }
            }
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        for ((from, to), queue) in &mut self.links {
            while queue.front().is_some_and(|(at, _)| *at <= now) {
                let (_, message) = queue.pop_front().expect("there is one");
                if let Some(member) = self.members.get_mut(to) {
                    member.handle_message(Instant::from_nanos(now), *from, message);
                }
            }
        }
    }

    /// Loses all messages in transit.
    pub(super) fn lose(&mut self) {
        self.collect();
        self.links.values_mut().for_each(VecDeque::clear);
    }

    /// The path of a PDU from `from` to `dst`. Each member uses its first next hop or another one,
    /// selected by `pick`. `None` if the PDU does not arrive within as many hops as there are
    /// members.
    pub(super) fn walk(&self, from: Address, dst: Address, pick: usize) -> Option<Vec<Address>> {
        let mut path = Vec::from([from]);
        let mut here = from;
        while here != dst {
            let route = self.members[&here].table().get(&dst)?;
            here = route.next[pick % route.next.len()];
            path.push(here);
            if path.len() > self.members.len() + 1 {
                return None;
            }
        }
        Some(path)
    }
}

struct Member<'a> {
    now: u64,
    routing: &'a mut Box<dyn Routing>,
}

impl Member<'_> {
    fn handle_link_up_at(&mut self, to: Address, cost: u32) {
        self.routing
            .handle_link_up(Instant::from_nanos(self.now), to, cost);
    }

    fn handle_link_down_at(&mut self, to: Address) {
        self.routing
            .handle_link_down(Instant::from_nanos(self.now), to);
    }
}
