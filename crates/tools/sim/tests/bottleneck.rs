//! Tests of a reliable flow whose receiver is slower than its sender, in all dialects.

use carina_sim::bottleneck::Bottleneck;
use carina_sim::member_factory;
use carina_wire::dif::Dialect;

/// Checks that the receiver always has data. The queue of 130,000 bytes holds some 90 PDUs, as a
/// socket buffer of rlite does; the window of a flow in dialect rlite is larger, 512 PDUs.
fn receiver_is_kept_busy(dialect: Dialect) {
    for rate_bps in [10_000_000, 50_000_000, 200_000_000] {
        let bottleneck = Bottleneck {
            seed: 1,
            dialect,
            rate_bps,
            queue_bytes: 130_000,
        };
        let goodput = match bottleneck.run(member_factory()) {
            Ok(goodput) => goodput,
            Err(error) => panic!("{} at {rate_bps} bit/s: {error}", dialect.name()),
        };
        let what = format!("{} at {rate_bps} bit/s: {goodput:?}", dialect.name());
        assert!(goodput.bps > rate_bps / 10 * 8, "{what}");
        assert!(goodput.longest_stall_ns < 1_000_000_000, "{what}");
    }
}

#[test]
fn native_flow_keeps_a_slow_receiver_busy() {
    receiver_is_kept_busy(Dialect::Native);
}

#[test]
fn rlite_flow_keeps_a_slow_receiver_busy() {
    receiver_is_kept_busy(Dialect::Rlite);
}

#[test]
fn irati_flow_keeps_a_slow_receiver_busy() {
    receiver_is_kept_busy(Dialect::Irati);
}
