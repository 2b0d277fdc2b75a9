//! The network cards of guests in benchmarks, and their addresses.

use std::net::Ipv4Addr;

use carina_vm::{Backend, Model, Nic};

/// A network card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Card {
    /// Name in the results of the compared system, which is this card: such as `virtio-net`.
    pub system: &'static str,
    /// Emulated model of the card.
    pub model: Model,
    /// Third byte of the card's IP addresses.
    pub subnet: u8,
}

/// The emulated cards that guests have in addition to the shared-memory device.
pub(crate) const CARDS: [Card; 2] = [
    Card {
        system: "virtio-net",
        model: Model::VirtioNet,
        subnet: 1,
    },
    Card {
        system: "e1000",
        model: Model::E1000,
        subnet: 2,
    },
];

/// The IP addresses of a benchmark: `10.NETWORK.SUBNET.HOST`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    /// Second byte of the addresses.
    pub network: u8,
    /// The cards of every guest.
    pub cards: &'static [Card],
}

impl Addresses {
    /// The address of host number `host` on the subnet of a card.
    pub(crate) fn of(self, card: &Card, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.network, card.subnet, host)
    }

    /// The MAC address of a card of host number `host`.
    pub(crate) fn mac_of(self, card: &Card, host: u8) -> [u8; 6] {
        [0x52, 0x54, 0, self.network, card.subnet, host]
    }

    /// Assigns the IP addresses of a guest's cards. Their last byte is `host`.
    ///
    /// # Errors
    /// A card is missing, or the guest does not answer.
    pub(crate) fn set(self, guest: &carina_lab::TestGuest, host: u8) -> carina_lab::Result<()> {
        self.cards.iter().try_for_each(|card| {
            let address = format!("{}/24", self.of(card, host));
            guest.set_address(self.mac_of(card, host), &address)
        })
    }

    /// The cards of guest number `host`. Each has the back end that `backend` returns, or else a
    /// tap that is named after the guest.
    pub(crate) fn nics(
        self,
        guest: &str,
        host: u8,
        backend: impl Fn(&Card) -> Option<Backend>,
    ) -> Vec<Nic> {
        let nic = |card: &Card| Nic {
            model: card.model,
            backend: backend(card)
                .unwrap_or_else(|| Backend::Tap(format!("tap{}-{guest}", card.subnet))),
            mac: Some(self.mac_of(card, host)),
        };
        self.cards.iter().map(nic).collect()
    }
}
