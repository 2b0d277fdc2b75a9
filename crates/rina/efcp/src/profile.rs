//! Protocol details in which EFCP implementations differ although their features are the same: how
//! a run is numbered and recognized, what an acknowledgement contains, and what is sent while the
//! window is closed. Both ends must use the same profile; the protocol does not negotiate it.

/// Protocol details of an EFCP implementation. The default is the profile of native DIFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EfcpProfile {
    /// The sequence number of the first PDU of a run.
    pub first: FirstNumber,
    /// Whether every data PDU has the data run flag, not only the first of a run. A receiver then
    /// starts a new run only when the number is far from the window. A PDU slightly below the
    /// window is a duplicate.
    pub drf_on_every: bool,
    /// Whether a receiver without a run accepts any first PDU as the start of the run, with or
    /// without the data run flag.
    ///
    /// With retransmission control, the sender therefore sends nothing else until the first PDU is
    /// acknowledged, at the start of a run and after a silence of 2Δt. If runs start with 0, a
    /// receiver that has never had a run does not accept a later PDU of the first window as the
    /// start.
    pub takes_any_first: bool,
    /// Whether an acknowledgement reports the PDUs received beyond a gap, the PDU that caused it
    /// and its delay, and congestion marks.
    ///
    /// Without, it contains only the next expected number. The sender then detects losses by
    /// repeated acknowledgements and by the timeout. It measures the round-trip time of the highest
    /// acknowledged PDU, if no lower one was retransmitted.
    pub selective: bool,
    /// Whether the receiver sends a control PDU for every data PDU without delay, even if the
    /// control PDU only repeats the window.
    pub answers_every: bool,
    /// What a sender does while its window stays closed and no PDU is outstanding.
    pub stall: Stall,
    /// Sequence number of the first control PDU: 0 or 1.
    pub control_first: u8,
    /// Whether the numbers of control PDUs restart with each new run of data.
    pub control_restarts: bool,
    /// Which sequence number follows the last number of the number space, and in which run.
    pub wrap: Wrap,
}

/// Which sequence number follows the last number of the number space, and in which run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    /// Nothing follows. A new connection must replace this one before that; see
    /// [`ConnEvent::Rollover`](crate::ConnEvent::Rollover).
    NewConnection,
    /// 0 follows, in the same run. Both sides count with more bits than the wire carries.
    Continues,
    /// 0 follows, in a new run, because the receiver would take a reused number for an old one
    /// without the data run flag.
    ///
    /// With retransmission control, the whole run must be acknowledged first. The highest number is
    /// not used: it can only come from a sender that does not start a new run, and the receiver
    /// fails the connection. Without retransmission control, the first PDUs after the wrap all have
    /// the flag, since one of them may be lost.
    NewRun,
}

/// How a sender chooses the sequence number of the first PDU of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstNumber {
    /// A random number above 0, in the first quarter of the number space.
    Random,
    /// The number 0.
    Zero,
    /// One more than a random number. The random number is not 0, and can be any other number of
    /// the number space; 0 follows its last number.
    AfterRandom,
}

/// What a sender does while its window stays closed and no PDU is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// The sender sends rendezvous PDUs.
    Rendezvous,
    /// The sender repeats its last data PDU, because the receiver answers duplicates with a control
    /// PDU. If the PDU is known to have arrived, the repetition has no user data.
    Repeat,
}

impl EfcpProfile {
    /// The profile of rlite. The first PDU has number 0 and the data run flag. A control PDU
    /// contains the next expected number and the window; if it is lost, a duplicate data PDU
    /// triggers another. rlite uses numbers of 64 bits internally and does not extend the shorter
    /// numbers of the wire to them.
    pub const RLITE: EfcpProfile = EfcpProfile {
        first: FirstNumber::Zero,
        drf_on_every: false,
        takes_any_first: true,
        selective: false,
        answers_every: false,
        stall: Stall::Repeat,
        control_first: 0,
        control_restarts: true,
        wrap: Wrap::NewRun,
    };

    /// The profile of IRATI: random first numbers, the data run flag on every PDU, and an answer to
    /// every PDU.
    pub const IRATI: EfcpProfile = EfcpProfile {
        first: FirstNumber::AfterRandom,
        drf_on_every: true,
        takes_any_first: true,
        selective: false,
        answers_every: true,
        stall: Stall::Rendezvous,
        control_first: 1,
        control_restarts: false,
        wrap: Wrap::Continues,
    };
}

impl Default for EfcpProfile {
    fn default() -> EfcpProfile {
        EfcpProfile {
            first: FirstNumber::Random,
            drf_on_every: false,
            takes_any_first: false,
            selective: true,
            answers_every: false,
            stall: Stall::Rendezvous,
            control_first: 1,
            control_restarts: false,
            wrap: Wrap::NewConnection,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnEvent, Connection, ConnectionConfig, WindowControl};
    use alloc::vec::Vec;
    use carina_time::{Duration, Instant};
    use carina_wire::dif::{Address, CepId, Pci, QosId};
    use carina_wire::{Bytes, Payload};

    const NOW: Instant = Instant::ZERO;

    fn connection(first: FirstNumber, drf_on_every: bool) -> Connection<Bytes> {
        let config = ConnectionConfig {
            window: Some(WindowControl {
                credit_max: 50,
                initial_credit: 50,
            }),
            profile: EfcpProfile {
                first,
                drf_on_every,
                takes_any_first: true,
                selective: false,
                wrap: Wrap::Continues,
                ..EfcpProfile::default()
            },
            ..ConnectionConfig::default()
        };
        Connection::new(NOW, config, 1)
    }

    /// Passes all PDUs from one end to the other, and returns their sequence numbers on the wire.
    fn pass(from: &mut Connection<Bytes>, to: &mut Connection<Bytes>) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(pdu) = from.poll_transmit(NOW) {
            if pdu.udf.is_some() {
                numbers.push(pdu.seq);
            }
            let pci = Pci {
                kind: pdu.kind,
                dst: Address(1),
                src: Address(2),
                qos: QosId(0),
                dst_cep: CepId(1),
                src_cep: CepId(1),
                drf: pdu.drf,
                ecn: false,
                seq: pdu.seq,
            };
            to.receive(NOW, &pci, pdu.control.as_ref(), pdu.udf)
                .expect("all is in order");
        }
        numbers
    }

    #[test]
    fn numbers_of_32_bits_wrap_within_a_run() {
        for (first, drf_on_every) in [(FirstNumber::Zero, false), (FirstNumber::AfterRandom, true)]
        {
            let mut sender = connection(first, drf_on_every);
            let mut receiver = connection(first, drf_on_every);
            sender.begin_with(u64::from(u32::MAX) - 99);
            let mut numbers = Vec::new();
            let mut delivered = 0;
            for number in 0..1000_u64 {
                let udf = Bytes::from(number.to_be_bytes().to_vec());
                sender.write(NOW, udf).expect("room");
                numbers.extend(pass(&mut sender, &mut receiver));
                receiver.end_of_burst(NOW);
                assert!(pass(&mut receiver, &mut sender).is_empty());
                while let Some(udf) = receiver.poll_deliver() {
                    let mut bytes = [0; 8];
                    assert_eq!(udf.udf.copy_prefix(&mut bytes), 8);
                    assert_eq!(u64::from_be_bytes(bytes), delivered);
                    delivered += 1;
                }
            }
            assert_eq!(delivered, 1000);
            assert_eq!(numbers.len(), 1000);
            assert_eq!(numbers[99..102], [0xffff_ffff, 0, 1]);
            assert_eq!(sender.poll_event(), None, "no rollover");
            assert_eq!(sender.counters().runs, 1);
        }
    }

    /// A connection with rlite's profile and sequence numbers of 16 bits.
    fn of_rlite(retransmission: bool) -> Connection<Bytes> {
        let window = WindowControl {
            credit_max: 512,
            initial_credit: 512,
        };
        let config = ConnectionConfig {
            retransmission,
            window: retransmission.then_some(window),
            seq_bits: 16,
            ctrl_seq_bits: 16,
            profile: EfcpProfile::RLITE,
            ..ConnectionConfig::default()
        };
        Connection::new(NOW, config, 1)
    }

    fn data_pci(seq: u64, drf: bool) -> Pci {
        Pci {
            kind: carina_wire::dif::PduType::Data,
            dst: Address(1),
            src: Address(2),
            qos: QosId(0),
            dst_cep: CepId(1),
            src_cep: CepId(1),
            drf,
            ecn: false,
            seq,
        }
    }

    /// The numbers in the UDFs that the connection delivered.
    fn delivered(connection: &mut Connection<Bytes>) -> Vec<u64> {
        connection.end_of_burst(NOW);
        let mut numbers = Vec::new();
        while let Some(delivered) = connection.poll_deliver() {
            let mut bytes = [0; 8];
            assert_eq!(delivered.udf.copy_prefix(&mut bytes), 8);
            numbers.push(u64::from_be_bytes(bytes));
        }
        numbers
    }

    #[test]
    fn run_ends_before_numbers_are_used_again() {
        let (mut sender, mut receiver) = (of_rlite(true), of_rlite(true));
        let (mut wire, mut got) = (Vec::new(), Vec::new());
        for number in 0..140_000_u64 {
            let udf = Bytes::from(number.to_be_bytes().to_vec());
            sender.write(NOW, udf).expect("room");
            wire.extend(pass(&mut sender, &mut receiver));
            got.extend(delivered(&mut receiver));
            receiver.set_credit(NOW, 512);
            pass(&mut receiver, &mut sender);
            wire.extend(pass(&mut sender, &mut receiver));
            got.extend(delivered(&mut receiver));
        }
        assert_eq!(got, (0..140_000).collect::<Vec<u64>>());
        assert_eq!(wire[65_534..65_537], [65_534, 0, 1]);
        assert_eq!(sender.counters().runs, 3);
        assert_eq!((sender.poll_event(), receiver.poll_event()), (None, None));
    }

    #[test]
    fn sender_that_uses_the_last_number_fails_the_connection() {
        // With rlite's profile: after number 65,535 the sender would repeat PDUs for ever, because
        // it would not recognize their acknowledgement.
        let mut receiver = of_rlite(true);
        for seq in 0..=65_535_u64 {
            let udf = Bytes::from(seq.to_be_bytes().to_vec());
            let taken = receiver.receive(NOW, &data_pci(seq, seq == 0), None, Some(udf));
            assert_eq!(taken.is_ok(), seq < 65_535, "{seq}");
            receiver.end_of_burst(NOW);
            while receiver.poll_deliver().is_some() {}
            while let Some(pdu) = receiver.poll_transmit(NOW) {
                let window = pdu.control.and_then(|control| control.window);
                // The sender may send the number before the edge. It must not lie below a number
                // that was allowed earlier.
                let allowed = window.expect("a window").right.wrapping_sub(1) & 0xffff;
                assert!(allowed >= seq, "the edge {allowed} is below {seq}");
            }
        }
        let failed = ConnEvent::Failed(crate::FailReason::PeerExhausted);
        assert_eq!(receiver.poll_event(), Some(failed));
    }

    #[test]
    fn numbers_that_are_used_again_have_the_data_run_flag() {
        // rlite's receiver counts with 64 bits: without the flag it takes wrapped numbers for old
        // ones.
        let (mut sender, mut receiver) = (of_rlite(false), of_rlite(false));
        let (mut expected, mut lost) = (0, 0);
        let mut got = Vec::new();
        for number in 0..70_000_u64 {
            let udf = Bytes::from(number.to_be_bytes().to_vec());
            sender.write(NOW, udf).expect("room");
            let pdu = sender.poll_transmit(NOW).expect("a PDU");
            if (65_530..65_540).contains(&number) {
                // Some PDUs around the wrap are lost.
                continue;
            }
            if pdu.drf || pdu.seq >= expected {
                expected = pdu.seq + 1;
            } else {
                lost += 1;
            }
            let pci = data_pci(pdu.seq, pdu.drf);
            receiver
                .receive(NOW, &pci, None, pdu.udf)
                .expect("in order");
            receiver.handle_timeout(NOW + Duration::from_secs(1));
            got.extend(delivered(&mut receiver));
        }
        assert_eq!(lost, 0);
        assert_eq!(got.len(), 70_000 - 10);
    }

    #[test]
    fn first_of_a_run_that_comes_late_is_late() {
        let config = || ConnectionConfig {
            window: None,
            in_order: true,
            retransmission: false,
            profile: EfcpProfile::RLITE,
            a: Duration::ZERO,
            ..ConnectionConfig::default()
        };
        for first in [1, 63, 64, 65, 83, 200, 4000] {
            let mut sender = Connection::new(NOW, config(), 1);
            let mut receiver = Connection::new(NOW, config(), 2);
            let mut pdus = Vec::new();
            for number in 0..=first {
                let udf = Bytes::from(u64::to_be_bytes(number).to_vec());
                sender.write(NOW, udf).expect("room");
                pdus.push(sender.poll_transmit(NOW).expect("a PDU"));
            }
            let mut read = Vec::new();
            let (last, late) = (pdus.pop().expect("the last"), pdus.remove(0));
            let late_again = (late.seq, late.drf, 0);
            for (seq, drf, number) in [(last.seq, last.drf, first), late_again, late_again] {
                let udf = Bytes::from(u64::to_be_bytes(number).to_vec());
                let _ = receiver.receive(NOW, &data_pci(seq, drf), None, Some(udf));
                read.extend(delivered(&mut receiver));
            }
            assert_eq!(read, [first]);
        }
    }
}
