//! Why a token does not let its user in.

use serde::{Deserialize, Serialize};

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Refusal {
    /// It is no token at all.
    Malformed,
    /// Its signature is not that of what it says.
    Changed,
    /// Its time is over.
    Expired,
    /// It is signed by someone else than the access point's provider.
    OtherIssuer,
    /// It belongs to another network or access point.
    OtherNetwork,
    /// Another system has joined with it.
    Used,
    /// Another system of the same user has joined since.
    Replaced,
    /// It was taken back.
    Revoked,
    /// Its user is no user of the access point any more.
    NoUser,
    /// It gives no right to anything that the access point has.
    Rights,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 10] = [
        Refusal::Malformed,
        Refusal::Changed,
        Refusal::Expired,
        Refusal::OtherIssuer,
        Refusal::OtherNetwork,
        Refusal::Used,
        Refusal::Replaced,
        Refusal::Revoked,
        Refusal::NoUser,
        Refusal::Rights,
    ];

    /// The word for it, as in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Changed => "changed",
            Refusal::Expired => "expired",
            Refusal::OtherIssuer => "other-issuer",
            Refusal::OtherNetwork => "other-network",
            Refusal::Used => "used",
            Refusal::Replaced => "replaced",
            Refusal::Revoked => "revoked",
            Refusal::NoUser => "no-user",
            Refusal::Rights => "rights",
        }
    }

    /// What the user can do about it.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Refusal::Malformed | Refusal::Changed => {
                "copy it again, whole, as `carina vnet token` has printed it"
            }
            Refusal::Expired | Refusal::Used | Refusal::Replaced => {
                "ask the operator of the network for a new one (`carina vnet token`)"
            }
            Refusal::OtherIssuer | Refusal::OtherNetwork => {
                "ask the operator of the network for one of this access point"
            }
            Refusal::Revoked => "ask the operator of the network why, and for a new one",
            Refusal::NoUser => {
                "the operator has to name the user in the document (`users`), and apply it"
            }
            Refusal::Rights => "ask the operator of the network for one with another right",
        }
    }
}

/// A refusal with what it is about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{what}: {}", reason.remedy())]
pub struct Refused {
    /// Why.
    pub reason: Refusal,
    /// What is refused, and why, in words.
    pub what: String,
}

impl Refused {
    /// A refusal in words. They may repeat what a stranger has sent: control characters are left
    /// out, and of more than 200 characters the first stand.
    #[must_use]
    pub fn new(reason: Refusal, what: impl Into<String>) -> Refused {
        let what: String = what.into();
        let shown = what.chars().filter(|char| !char.is_control());
        Refused {
            reason,
            what: shown.take(WORDS_MAX).collect(),
        }
    }
}

/// Characters of a refusal, which has to fit a datagram.
const WORDS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_long_text_fits_a_datagram() {
        let what = "\u{7f}a".repeat(3000);
        let refused = Refused::new(Refusal::Malformed, what);
        assert_eq!(refused.what, "a".repeat(WORDS_MAX));
    }

    #[test]
    fn words_are_those_of_json() {
        for reason in Refusal::ALL {
            let json = serde_json::to_string(&reason).unwrap();
            assert_eq!(json, format!("{:?}", reason.word()));
        }
    }

    #[test]
    fn refusal_says_what_to_do() {
        let refused = Refused::new(Refusal::Expired, "the token has expired");
        let text = refused.to_string();
        assert!(text.starts_with("the token has expired: ask the operator"));
    }
}
