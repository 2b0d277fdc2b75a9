//! What implementations of EFCP do differently although their features are the same: how a run is
//! numbered and recognised, what an acknowledgement holds, what is sent while the window is closed.
//! Both ends must agree, and neither says so on the wire.

/// See the module. The default is what this implementation does among its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EfcpProfile {
    /// Which sequence number a run begins with.
    pub first: FirstNumber,
    /// Every data PDU has the data run flag, not only the first of a run. A receiver takes it for
    /// a new run only when its number is far from the window; one below it is a duplicate.
    pub drf_on_every: bool,
    /// A receiver without a run takes the first PDU that comes for the first of the run, with the
    /// data run flag or without. With retransmission control a sender therefore sends nothing
    /// else before that one is acknowledged, at the start of a run and after a silence of 2Δt; and
    /// a receiver of runs that begin with 0 does not believe that of a PDU behind it, as long as
    /// there was none.
    pub takes_any_first: bool,
    /// An acknowledgement reports what arrived beyond a gap, which PDU caused it and how long ago,
    /// and counts congestion marks. Without, it holds only what is expected next: the
    /// sender finds losses by repeated acknowledgements and by the timeout, and takes round-trip
    /// times from the highest PDU that is acknowledged when none below was sent again.
    pub selective: bool,
    /// A control PDU answers every data PDU at once, also to report only the window.
    pub answers_every: bool,
    /// What a sender does whose window stays closed with nothing outstanding.
    pub stall: Stall,
    /// Number of the first control PDU, 0 or 1.
    pub control_first: u8,
    /// Control PDUs are numbered from the beginning again when the data run flag of a new run
    /// comes, and their sender is believed to do so.
    pub control_restarts: bool,
    /// What follows the last sequence number.
    pub wrap: Wrap,
}

/// What follows the last sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    /// Nothing: a new connection must take over before that, see
    /// [`ConnEvent::Rollover`](crate::ConnEvent::Rollover).
    NewConnection,
    /// 0, in the same run: both sides count on with more bits than there are on the wire.
    Continues,
    /// 0, in a new run: the other side takes a number that is used again for an old one, until it
    /// sees the data run flag. With retransmission control all of the run has to be acknowledged
    /// first, and the highest number is not used: it comes only from a sender that begins no new
    /// run, and its connection fails. Without, the first PDUs after the wrap have the flag, since
    /// one of them might be lost.
    NewRun,
}

/// Which sequence number a run begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstNumber {
    /// A random one in the first quarter of the number space.
    Random,
    /// 0.
    Zero,
    /// The one after a random number that is not 0, anywhere in the number space.
    AfterRandom,
}

/// What a sender does whose window stays closed with nothing outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// It sends rendezvous PDUs.
    Rendezvous,
    /// It has no rendezvous PDUs and repeats its last data PDU (without user data when that is
    /// known to have arrived), since duplicates are answered with a control PDU.
    Repeat,
}

impl EfcpProfile {
    /// EFCP of rlite: its first PDU has number 0 and the data run flag; a control PDU holds what is
    /// expected next and the window, and when it was lost a duplicate brings another. Inside, its
    /// numbers have 64 bits whatever the wire has, and nothing extends those of the wire to them.
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

    /// EFCP of IRATI: random numbers, the data run flag on every PDU, and an answer to every PDU.
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

    /// Moves everything from one end to the other; returns the sequence numbers on the wire.
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

    /// A connection of rlite's profile with numbers of 16 bits.
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

    /// UDFs of their numbers that were delivered.
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
        // rlite's: behind 65,535 it would repeat for ever what it takes for not acknowledged.
        let mut receiver = of_rlite(true);
        for seq in 0..=65_535_u64 {
            let udf = Bytes::from(seq.to_be_bytes().to_vec());
            let taken = receiver.receive(NOW, &data_pci(seq, seq == 0), None, Some(udf));
            assert_eq!(taken.is_ok(), seq < 65_535, "{seq}");
            receiver.end_of_burst(NOW);
            while receiver.poll_deliver().is_some() {}
            while let Some(pdu) = receiver.poll_transmit(NOW) {
                let window = pdu.control.and_then(|control| control.window);
                // The number before it may be sent, and is not below one that was allowed before.
                let allowed = window.expect("a window").right.wrapping_sub(1) & 0xffff;
                assert!(allowed >= seq, "the edge {allowed} is below {seq}");
            }
        }
        let failed = ConnEvent::Failed(crate::FailReason::PeerExhausted);
        assert_eq!(receiver.poll_event(), Some(failed));
    }

    #[test]
    fn numbers_that_are_used_again_have_the_data_run_flag() {
        // rlite's receiver counts with 64 bits: without the flag it takes them for old ones.
        let (mut sender, mut receiver) = (of_rlite(false), of_rlite(false));
        let (mut expected, mut lost) = (0, 0);
        let mut got = Vec::new();
        for number in 0..70_000_u64 {
            let udf = Bytes::from(number.to_be_bytes().to_vec());
            sender.write(NOW, udf).expect("room");
            let pdu = sender.poll_transmit(NOW).expect("a PDU");
            if (65_530..65_540).contains(&number) {
                // Some around the wrap do not arrive.
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
