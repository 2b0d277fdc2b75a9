//! Simulates one reliable flow over a cable that is slower than its writer, and that drops PDUs
//! when its short queue is full. This is like a receiver of datagrams that reads more slowly than
//! they arrive.

use carina_ipcp::{Config, DifConfig};
use carina_wire::FlowSpec;
use carina_wire::dif::Dialect;

use crate::dialect::Terms;
use crate::link::Profile;
use crate::member::MemberFactory;
use crate::model::{Attachment, Below, SlotId};
use crate::run_error::RunError;
use crate::session::{Ending, FlowRequest, Reader};
use crate::stream::Lengths;
use crate::world::World;

/// One flow over a slow cable: seed, dialect, rate and queue.
#[derive(Clone, Copy, Debug)]
pub struct Bottleneck {
    /// Seed of the simulation.
    pub seed: u64,
    /// The dialect of both members.
    pub dialect: Dialect,
    /// Rate of the cable in bits per second.
    pub rate_bps: u64,
    /// Number of bytes that the queue of the cable holds.
    pub queue_bytes: u64,
}

/// How many bits a second the simulated flow delivered, and its longest time without data.
#[derive(Clone, Copy, Debug)]
pub struct Goodput {
    /// Bits of SDU content that the reader got, per second.
    pub bps: u64,
    /// Longest time in which the reader got nothing, in ns; measured in steps of 50 ms.
    pub longest_stall_ns: u64,
}

impl Bottleneck {
    /// Builds two members and a cable, writes for 20 s of virtual time, and returns what the reader
    /// got.
    ///
    /// # Errors
    /// The flow fails, or the members do not find each other.
    pub fn run(&self, member_factory: MemberFactory) -> Result<Goodput, RunError> {
        let mut world = World::new(self.seed, member_factory);
        let slots = self.connect(&mut world);
        let goodput = measure(&mut world, slots, Terms::of(self.dialect));
        let failures = world.take_failures();
        match goodput {
            Some(goodput) if failures.is_empty() => Ok(goodput),
            _ => Err(RunError {
                failures,
                state: world.describe(),
            }),
        }
    }

    fn connect(&self, world: &mut World) -> [SlotId; 2] {
        let profile = Profile {
            delay_ns: MS / 10,
            rate_bps: self.rate_bps,
            queue_bytes: self.queue_bytes,
            is_blocking: false,
            ..Profile::clean()
        };
        let terms = Terms::of(self.dialect);
        let config = terms.config(self.seed, 2, &profile, DifConfig::default());
        let systems = ["s0", "s1"].map(|name| world.add_system(name));
        let slots = [0, 1].map(|at| {
            let config = Config {
                name: format!("m{at}"),
                dif: "net".to_owned(),
                dialect: self.dialect,
                dif_config: Some(config.clone()),
            };
            let born = world.now() + at as u64 * 1_000 * MS;
            let slot = world.add_slot(systems[at], config, at == 0, born);
            world.add_app(slot, &format!("app{at}"));
            slot
        });
        let cable = world.add_cable([systems[1], systems[0]], profile, None);
        for (side, at) in [1, 0].into_iter().enumerate() {
            let attachment = Attachment {
                below: Below::Cable(cable),
                remote: format!("m{}", 1 - at),
                is_initiator: side == 0,
                is_reliable: false,
            };
            world.attach(slots[at], attachment);
        }
        slots
    }
}

fn measure(world: &mut World, slots: [SlotId; 2], terms: Terms) -> Option<Goodput> {
    let end = world.now() + terms.join_ns(2);
    if !world.run_while(end, 1_000 * MS, |world| !world.is_joined()) {
        world.fail("the members did not find each other".to_owned());
        return None;
    }
    // Time in which each member learns of both applications.
    world.run_for(60_000 * MS);
    let request = FlowRequest {
        from: slots[0],
        to: "app1".to_owned(),
        spec: FlowSpec::reliable(),
        sdus: [1_000_000, 0],
        lengths: Lengths::Fixed(SDU_BYTES),
        pause_ns: 0,
        readers: [Reader::eager(); 2],
        ending: Ending::Never,
        is_refused: false,
    };
    let Some(number) = world.call(request) else {
        world.fail("app0 cannot call app1".to_owned());
        return None;
    };
    let (mut read, mut read_at, mut longest_stall_ns) = (0, world.now(), 0);
    let end = world.now() + RUN_NS;
    while world.now() < end && world.failures().is_empty() {
        world.run_for(STEP_NS);
        let [.., got] = world.sessions[number].streams[0].progress();
        if got > read {
            (read, read_at) = (got, world.now());
        }
        longest_stall_ns = longest_stall_ns.max(world.now() - read_at);
    }
    Some(Goodput {
        bps: read * 8 * 1_000_000_000 / RUN_NS,
        longest_stall_ns,
    })
}

const MS: u64 = 1_000_000;

/// Length of the SDUs. They fit into one PDU in every dialect.
const SDU_BYTES: usize = 1_400;

const RUN_NS: u64 = 20_000 * MS;

const STEP_NS: u64 = 50 * MS;
