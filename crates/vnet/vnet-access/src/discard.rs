//! Reasons for which an access point discards datagrams and packets. Their names are those of
//! counters.

macro_rules! discards {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A reason for which a datagram or packet was discarded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Discard {
            $($(#[$doc])* $variant,)*
        }

        impl Discard {
            /// All reasons.
            pub const ALL: &[Discard] = &[$(Discard::$variant,)*];

            /// Name of the reason's counter.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Discard::$variant => $name,)*
                }
            }
        }
    };
}

discards! {
    /// A datagram that is not WireGuard, or not for this access point's key.
    NotWireguard = "drop_not_wireguard",
    /// A handshake that was answered with a cookie because there are too many.
    UnderLoad = "drop_under_load",
    /// A handshake that cannot be decrypted.
    Handshake = "drop_handshake",
    /// A handshake of a system that uses the access point's own key.
    OwnKey = "drop_own_key",
    /// A datagram of an unknown session, or of one that has ended.
    Session = "drop_session",
    /// A datagram that cannot be decrypted, or was received before.
    Sealed = "drop_sealed",
    /// A guest's handshake while there are too many guests.
    Guests = "drop_guests",
    /// A guest's packet that is not a request.
    Guest = "drop_guest",
    /// A request while too many are waiting.
    Requests = "drop_requests",
    /// A user's packet with a source address other than the user's.
    Source = "drop_source",
    /// A packet that the rights in its user's token do not allow; the user is its sender or its
    /// receiver.
    Right = "drop_right",
    /// A packet from a user, dropped by the queue that limits what this user sends.
    RateUp = "drop_rate_up",
    /// A packet to a user, dropped by the queue that limits what this user receives.
    RateDown = "drop_rate_down",
    /// A packet that is not IPv4, or damaged.
    NotIpv4 = "drop_not_ipv4",
    /// A packet longer than the MTU.
    Length = "drop_length",
    /// A packet to the address of a user who has not joined, or a packet that was still in a user's
    /// queue when this user left.
    NoUser = "drop_no_user",
    /// A multicast or broadcast packet, or a packet to the access point's own address to which the
    /// access point has no answer.
    Group = "drop_group",
    /// A packet to a user who has joined, but whose system has not sent any datagram yet.
    Silent = "drop_silent",
    /// The socket or the link had no room.
    NoRoom = "drop_no_room",
}

/// For each reason, the count since the counts were last taken.
#[derive(Clone, Debug, Default)]
pub struct Discards([u64; COUNT]);

const COUNT: usize = Discard::ALL.len();

impl Discards {
    /// Counts one discard.
    pub fn note(&mut self, reason: Discard) {
        self.0[reason as usize] += 1;
    }

    /// Counts several discards for the same reason.
    pub fn add(&mut self, reason: Discard, count: u64) {
        self.0[reason as usize] += count;
    }

    /// Takes the counts that are not zero, and resets all counts.
    pub fn take(&mut self) -> impl Iterator<Item = (Discard, u64)> {
        let counts = std::mem::take(&mut self.0);
        let all = Discard::ALL.iter().copied().zip(counts);
        all.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discards_are_counted_under_their_reasons() {
        let mut discards = Discards::default();
        for reason in [Discard::Source, Discard::NoRoom, Discard::Source] {
            discards.note(reason);
        }
        let taken: Vec<(Discard, u64)> = discards.take().collect();
        assert_eq!(taken, [(Discard::Source, 2), (Discard::NoRoom, 1)]);
        assert_eq!(discards.take().count(), 0);
    }

    #[test]
    fn counters_have_names_of_their_own() {
        let mut names: Vec<&str> = Discard::ALL.iter().map(|discard| discard.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Discard::ALL.len());
    }
}
