//! State of an interface that was learned from its packets: the dialect, and the endpoints of RINA
//! over UDP.

use std::collections::BTreeSet;

use carina_wire::dif::Dialect;

use super::udp::{Datagram, Endpoint};
use super::{Settings, pdu};

/// State of an interface.
pub(super) struct State {
    pub settings: Settings,
    /// Endpoints that have sent a datagram to the port of RINA over UDP. Answers to them may come
    /// from any port.
    callers: BTreeSet<Endpoint>,
}

impl State {
    pub(crate) fn new(settings: Settings) -> State {
        State {
            settings,
            callers: BTreeSet::new(),
        }
    }

    /// Sets the dialect, which was recognised by something other than a PDU, unless it is already
    /// certain.
    pub(crate) fn suppose(&mut self, dialect: Dialect) {
        if !self.settings.is_certain {
            self.settings = self.settings.in_dialect(dialect);
            self.settings.is_certain = true;
        }
    }

    /// The settings for an SDU. The first SDU that is a PDU of some dialect decides the dialect.
    pub(crate) fn decide(&mut self, sdu: &[u8], original: usize) -> Settings {
        if !self.settings.is_certain
            && let Some(settings) = pdu::dialect_of(&self.settings, sdu, original)
        {
            self.settings = settings;
            self.settings.is_certain = true;
        }
        self.settings
    }

    /// The datagram in an IP packet and its captured bytes, if the datagram carries RINA; otherwise
    /// `None`.
    pub(crate) fn datagram<'a>(
        &mut self,
        ethertype: u16,
        packet: &'a [u8],
        original: usize,
    ) -> Option<(Datagram, &'a [u8])> {
        let (datagram, bytes) = Datagram::decode(ethertype, packet, original)?;
        if datagram.to.is_rina() && !datagram.from.is_rina() {
            if self.callers.len() >= CALLERS_MAX {
                self.callers.clear();
            }
            self.callers.insert(datagram.from);
        }
        let ends = [datagram.from, datagram.to];
        let is_rina = |end: &Endpoint| end.is_rina() || self.callers.contains(end);
        ends.iter().any(is_rina).then_some((datagram, bytes))
    }
}

/// Largest number of endpoints that are remembered.
const CALLERS_MAX: usize = 4096;
