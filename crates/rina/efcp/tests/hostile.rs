//! Runs random scripts against connections and assemblers; see `carina_efcp::fuzz`.

use carina_efcp::fuzz;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_connection_survives_any_peer(
        kind in 0_u8..3,
        features in 0_u8..64,
        script in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut data = vec![features];
        data.extend(script);
        fuzz::connection(kind, &data);
    }

    #[test]
    fn a_connection_survives_a_peer_that_stays_close(
        kind in 0_u8..3,
        features in 0_u8..64,
        script in prop::collection::vec(0x30_u8..0x58, 0..400),
    ) {
        let mut data = vec![features];
        data.extend(script);
        fuzz::connection(kind, &data);
    }

    #[test]
    fn an_assembler_survives_any_udfs(script in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::assembler(&script);
    }

    #[test]
    fn an_assembler_survives_short_udfs(
        features in 0_u8..16,
        udfs in prop::collection::vec((any::<bool>(), 0_u8..4, 0_u8..4, 0_u8..6, 0_u8..6), 0..60),
    ) {
        // Fragments of a few SDUs, with small numbers and offsets.
        let mut data = vec![features];
        for (gap, kind, flags, number, offset) in udfs {
            let udf = [kind << 6 | flags << 4, 0, 0, 0, number, 0, 0, 0, offset, 7, 7];
            let length = if kind == 2 { 2 + offset } else { 9 + flags % 3 };
            data.push(length | u8::from(gap) << 7);
            let mut udf = udf.to_vec();
            if kind == 2 {
                udf[1] = number;
            }
            data.extend(&udf[..usize::from(length).min(11)]);
        }
        fuzz::assembler(&data);
    }
}
