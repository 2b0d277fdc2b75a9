//! Flows of all cubes, short and long SDUs, one N-1 flow or several hops.

use crate::net::{Net, config, cubes, sdu};

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
            net.settle();
        }
        net.run_until(net.now + 1_000_000_000);
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
