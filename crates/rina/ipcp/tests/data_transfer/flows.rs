//! Flows of all cubes with short and long SDUs, over one N-1 flow or several hops.

use carina_ipcp::config::{QosCube, RateConfig, WindowConfig};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::{Catalogue, DataPath};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;

use crate::data_transfer::net::{Net, config, cubes, sdu};

#[test]
fn cubes_that_no_flow_could_have_are_refused_with_the_dif() {
    let refusal = |change: &dyn Fn(&mut QosCube)| {
        let mut config = config();
        change(&mut config.cubes[1]);
        let mut member = DataPath::<Bytes>::new(Catalogue::standard(), 1);
        let refused = member.configure(Instant::ZERO, &config);
        refused.unwrap_err().to_string()
    };
    let window = |credit_max, initial_credit| {
        Some(WindowConfig {
            credit_max,
            initial_credit,
        })
    };
    let rate = |pdus, frame_ms| Some(RateConfig { pdus, frame_ms });
    for text in [
        refusal(&|cube| cube.window = window(0, 1)),
        refusal(&|cube| cube.window = window(1, 0)),
        refusal(&|cube| cube.rate = rate(0, 1)),
        refusal(&|cube| cube.rate = rate(1, 0)),
        refusal(&|cube| cube.max_loss = 10_001),
    ] {
        assert!(text.starts_with("QoS cube 2: "), "{text}");
    }
}

#[test]
fn every_cube_carries_sdus_of_all_lengths() {
    let lengths = [
        0, 1, 2, 700, 749, 1400, 1479, 1480, 1481, 3000, 20_000, 65_000,
    ];
    for cube in cubes() {
        let mut net = Net::new(2, &config());
        net.wire((0, 0), (1, 0));
        net.flow(0, 1, 4, &cube);
        let sdus: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(number, len)| sdu(number, *len))
            .collect();
        for sdu in &sdus {
            net.write(0, 4, sdu);
            net.write(1, 4, sdu);
            net.run_until_quiet();
        }
        net.run_until(net.now + Duration::from_secs(1));
        assert_eq!(net.take_read(1, 4), sdus, "{}", cube.name);
        assert_eq!(net.take_read(0, 4), sdus, "{}", cube.name);
        for member in &net.members {
            assert_eq!(
                member.counters().dropped_total(),
                0,
                "{:?}",
                member.counters()
            );
        }
    }
}
