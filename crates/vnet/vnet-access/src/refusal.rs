//! Reasons for which a token does not admit its user.

use serde::{Deserialize, Serialize};

/// Why an access point refuses the token with which a user wants to join the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Refusal {
    /// The text is not a token.
    Malformed,
    /// The signature of the token does not match its content: the text was changed after signing.
    Changed,
    /// The token has expired.
    Expired,
    /// Another agent than the one that has the access point signed the token.
    OtherIssuer,
    /// The token belongs to another network or access point.
    OtherNetwork,
    /// The token was used before: another system has joined with it, or the user has joined with a
    /// newer token since.
    Used,
    /// Another system of the same user has joined with a newer token.
    Replaced,
    /// All tokens that the user had got by some time were revoked (`carina vnet revoke`), this one
    /// included.
    Revoked,
    /// The document of the network no longer lists the user at the access point.
    NoUser,
    /// The token grants no right that the access point can give.
    Rights,
}

impl Refusal {
    /// All reasons.
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

    /// The keyword of the reason, as in JSON.
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

    /// A text for the user whose token is refused for this reason: what helps.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Refusal::Malformed | Refusal::Changed => {
                "copy the whole token again, as `carina vnet token` printed it"
            }
            Refusal::Expired | Refusal::Used | Refusal::Replaced => {
                "ask the operator of the network for a new token (`carina vnet token`)"
            }
            Refusal::OtherIssuer | Refusal::OtherNetwork => {
                "ask the operator of the network for a token of this access point"
            }
            Refusal::Revoked => {
                "ask the operator of the network for the reason, and for a new token"
            }
            Refusal::NoUser => {
                "the operator of the network must add the user to `users` in the document, and \
                 apply it"
            }
            Refusal::Rights => "ask the operator of the network for a token with another right",
        }
    }
}

/// A refusal: the reason and a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{what}: {}", reason.remedy())]
pub struct Refused {
    /// Why the token is refused.
    pub reason: Refusal,
    /// A text with the refused request and the reason.
    pub what: String,
}

impl Refused {
    /// A refusal with this text. The text may contain what a stranger has sent: control characters
    /// are removed, and only the first 200 characters are kept.
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

/// Largest number of characters of a refusal, so that it fits into a datagram.
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
