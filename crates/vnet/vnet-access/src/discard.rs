//! What an access point discards, by reason. The names are those of counters.

macro_rules! discards {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a datagram or a packet was discarded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Discard {
            $($(#[$doc])* $variant,)*
        }

        impl Discard {
            /// All reasons.
            pub const ALL: &[Discard] = &[$(Discard::$variant,)*];

            /// The name of the counter.
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
    /// A datagram of another protocol than WireGuard, or not for this key.
    NotWireguard = "drop_not_wireguard",
    /// A handshake that was answered with a cookie: too many come.
    UnderLoad = "drop_under_load",
    /// A handshake that does not decrypt.
    Handshake = "drop_handshake",
    /// A handshake of a system that has the access point's own key.
    OwnKey = "drop_own_key",
    /// A datagram of a session that is not there, or not any more.
    Session = "drop_session",
    /// A datagram that does not decrypt, or came before.
    Sealed = "drop_sealed",
    /// A handshake of a guest when there are guests enough.
    Guests = "drop_guests",
    /// A packet of a guest that is no request.
    Guest = "drop_guest",
    /// A request when enough of them wait.
    Requests = "drop_requests",
    /// A user's packet that does not come from the address that is theirs.
    Source = "drop_source",
    /// A packet from or to a user whose token gives no right to it.
    Right = "drop_right",
    /// What a user sends above the rate.
    RateUp = "drop_rate_up",
    /// What is for a user above the rate.
    RateDown = "drop_rate_down",
    /// A packet that is not of IPv4, or damaged.
    NotIpv4 = "drop_not_ipv4",
    /// A packet that is longer than the MTU.
    Length = "drop_length",
    /// A packet for an address that no user has who has joined.
    NoUser = "drop_no_user",
    /// A packet for many, or for an access point's own address that it does not answer.
    Group = "drop_group",
    /// A packet for a user whose system has not been heard.
    Silent = "drop_silent",
    /// The socket or the link took no more.
    NoRoom = "drop_no_room",
}

/// How often each reason has occurred since the last time it was taken.
#[derive(Clone, Debug, Default)]
pub struct Discards([u64; COUNT]);

const COUNT: usize = Discard::ALL.len();

impl Discards {
    /// Notes one.
    pub fn note(&mut self, reason: Discard) {
        self.0[reason as usize] += 1;
    }

    /// Those that occurred, with their number, which are forgotten.
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
        let mut names: Vec<&str> = Discard::ALL.iter().map(|it| it.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Discard::ALL.len());
    }
}
