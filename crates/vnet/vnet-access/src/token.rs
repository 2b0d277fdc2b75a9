//! Tokens, which operators give to users.
//!
//! A token is a JSON Web Signature in compact form (RFC 7515) with the algorithm EdDSA (RFC 8037),
//! so that common tools can show its content. The header is a fixed text: a token with another
//! header, and thus with another algorithm, is refused.
//!
//! ```text
//!   eyJhbGciOiJFZERTQSJ9 . claims in JSON . Ed25519 signature over what is before
//!                          (each in base64url without padding)
//! ```
//!
//! A holder of the token can join with it, once. The token is sent only to the access point, inside
//! a tunnel that is encrypted with the key in the token.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use carina_vnet::access::Right;
use carina_vnet::document::is_name;
use carina_vnet::document::limits::TEXT_VALUE_MAX;
use carina_vnet::host_part::VnetId;
use serde::{Deserialize, Serialize};

use crate::key::{HostKeys, KeyError, PublicKey, decode, encode, random_bytes};
use crate::refusal::{Refusal, Refused};

/// The claims of a token. Fields that RFC 7519 defines have its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Issuer: the access point, as `ACCESS.NETWORK`.
    pub iss: String,
    /// Ed25519 public key that verifies the signature.
    pub by: PublicKey,
    /// Name of the user for whom the token was made.
    pub sub: String,
    /// Identifier (uid) of the network that the holder may join.
    pub vnet: VnetId,
    /// Name of the network that the holder may join.
    pub name: String,
    /// Name of the access point that accepts the token.
    pub access: String,
    /// Addresses and UDP ports at which users reach the access point; a NAT may forward them.
    pub at: Vec<SocketAddr>,
    /// X25519 public key of the access point's tunnels.
    pub key: PublicKey,
    /// When the token, and a session that was started with it, end: seconds since 1970, UTC.
    pub exp: u64,
    /// The rights that the token grants.
    pub rights: BTreeSet<Right>,
    /// How often the user's tokens had been revoked when this one was made.
    pub round: u64,
    /// A unique, unpredictable ID: 16 random bytes in base64url.
    pub jti: String,
}

/// A token whose signature is valid for the key that it contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    claims: Claims,
    text: String,
}

impl Token {
    /// Makes a token with these claims, signed with the host's key.
    ///
    /// # Errors
    /// The key is refused, or the names are too long for a token.
    pub fn sign(claims: Claims, keys: &HostKeys) -> Result<Token, KeyError> {
        let json = serde_json::to_vec(&claims).expect("claims have only plain fields");
        let signed = format!("{HEADER}.{}", encode(&json));
        let signature = encode(&keys.sign(signed.as_bytes())?);
        let text = format!("{signed}.{signature}");
        if text.len() > TOKEN_MAX {
            Err(KeyError::Long(text.len()))
        } else {
            Ok(Token { claims, text })
        }
    }

    /// Parses a token, and checks the signature with the key in the token. Whether that key is
    /// trusted is decided by the access point.
    ///
    /// # Errors
    /// The text is not a token ([`Refusal::Malformed`]), or was changed ([`Refusal::Changed`]).
    pub fn read(text: &str) -> Result<Token, Refused> {
        let text = text.trim();
        let (signed, signature, claims) = parts(text).map_err(|problem| {
            Refused::new(
                Refusal::Malformed,
                format!("the text is not a valid token: {problem}"),
            )
        })?;
        if !claims.by.has_signed(signed.as_bytes(), &signature) {
            let what = "the token was changed after it was signed";
            return Err(Refused::new(Refusal::Changed, what));
        }
        let text = text.to_owned();
        Ok(Token { claims, text })
    }

    /// Returns the claims: what the token allows, to whom, and until when.
    #[must_use]
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The token as text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Splits a token into the signed text, the signature, and the claims.
fn parts(text: &str) -> Result<(&str, Vec<u8>, Claims), String> {
    if text.len() > TOKEN_MAX {
        return Err(format!(
            "it has {} letters, and at most {TOKEN_MAX} are possible",
            text.len()
        ));
    }
    let mut parts = text.split('.');
    let (Some(header), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("it needs three parts with dots between".to_owned());
    };
    if header != HEADER {
        return Err(format!("it does not begin with {HEADER}."));
    }
    let signed = &text[..header.len() + 1 + claims.len()];
    let json = decode(claims).ok_or("its second part is not base 64")?;
    let signature = decode(signature).ok_or("its third part is not base 64")?;
    let claims: Claims = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    check(&claims)?;
    Ok((signed, signature, claims))
}

/// Checks what the claims' types do not enforce.
fn check(claims: &Claims) -> Result<(), String> {
    for (what, name) in [("name", &claims.name), ("access", &claims.access)] {
        if !is_name(name) {
            return Err(format!("{what} is no name"));
        }
    }
    for (what, text) in [("iss", &claims.iss), ("sub", &claims.sub)] {
        if !(1..=TEXT_VALUE_MAX).contains(&text.chars().count())
            || text.chars().any(char::is_control)
        {
            return Err(format!("{what} has 1 to {TEXT_VALUE_MAX} letters"));
        }
    }
    if !(1..=ADDRESSES_MAX).contains(&claims.at.len()) {
        return Err(format!("at has 1 to {ADDRESSES_MAX} addresses"));
    }
    if decode(&claims.jti).is_none_or(|bytes| bytes.len() != ID_BYTES) {
        return Err(format!("jti has {ID_BYTES} bytes in base 64"));
    }
    match claims.at.iter().find(|at| at.port() == 0) {
        Some(at) => Err(format!("{at} has no port")),
        None => Ok(()),
    }
}

/// A new random value for [`Claims::jti`].
///
/// # Errors
/// The system provides no random bytes.
pub fn new_id() -> Result<String, KeyError> {
    let bytes: [u8; ID_BYTES] = random_bytes().map_err(KeyError::Random)?;
    Ok(encode(&bytes))
}

const ID_BYTES: usize = 16;
/// The base64url form of `{"alg":"EdDSA"}`.
const HEADER: &str = "eyJhbGciOiJFZERTQSJ9";
/// Letters of the longest token, which fits into a datagram with the headers around it.
pub const TOKEN_MAX: usize = 1200;
/// Largest number of addresses of an access point in a token.
pub const ADDRESSES_MAX: usize = 4;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn keys() -> HostKeys {
        let directory = tempfile::tempdir().unwrap();
        HostKeys::at(&directory.path().join("keys")).unwrap()
    }

    pub(crate) fn claims(keys: &HostKeys) -> Claims {
        Claims {
            iss: "h1".to_owned(),
            by: keys.signer().unwrap(),
            sub: "alice".to_owned(),
            vnet: VnetId::new(7),
            name: "demo".to_owned(),
            access: "home".to_owned(),
            at: vec!["192.0.2.1:51820".parse().unwrap()],
            key: keys.tunnel().public(),
            exp: 2_000_000_000,
            rights: [Right::Ip].into(),
            round: 0,
            jti: encode(&[9; 16]),
        }
    }

    #[test]
    fn header_is_what_it_says() {
        assert_eq!(encode(br#"{"alg":"EdDSA"}"#), HEADER);
    }

    #[test]
    fn token_is_read_as_it_was_signed() {
        let keys = keys();
        let token = Token::sign(claims(&keys), &keys).unwrap();
        assert_eq!(Token::read(token.text()), Ok(token.clone()));
        let padded = format!("  {}\n", token.text());
        assert_eq!(Token::read(&padded), Ok(token));
    }

    #[test]
    fn token_with_any_letter_changed_is_refused() {
        let keys = keys();
        let token = Token::sign(claims(&keys), &keys).unwrap();
        let letters: Vec<char> = token.text().chars().collect();
        for at in 0..letters.len() {
            let mut changed = letters.clone();
            changed[at] = if changed[at] == 'A' { 'B' } else { 'A' };
            let text: String = changed.into_iter().collect();
            let refused = Token::read(&text).unwrap_err();
            let reason = refused.reason;
            assert!(
                matches!(reason, Refusal::Malformed | Refusal::Changed),
                "{at}: {refused}"
            );
        }
    }

    #[test]
    fn token_that_says_more_than_was_signed_is_changed() {
        let keys = keys();
        let mut more = claims(&keys);
        let token = Token::sign(more.clone(), &keys).unwrap();
        more.exp += 1;
        let json = serde_json::to_vec(&more).unwrap();
        let signature = token.text().rsplit('.').next().unwrap();
        let forged = format!("{HEADER}.{}.{signature}", encode(&json));
        let refused = Token::read(&forged).unwrap_err();
        assert_eq!(refused.reason, Refusal::Changed);
        assert!(refused.to_string().contains("copy the whole token again"));
    }

    #[test]
    fn what_is_no_token_gets_words() {
        let keys = keys();
        let sign = |change: &dyn Fn(&mut Claims)| {
            let mut claims = claims(&keys);
            change(&mut claims);
            Token::sign(claims, &keys).unwrap().text().to_owned()
        };
        let long = "x".repeat(TOKEN_MAX + 1);
        for (text, words) in [
            (String::new(), "three parts"),
            ("a.b".to_owned(), "three parts"),
            ("eyJhbGciOiJub25lIn0.e30.".to_owned(), "does not begin with"),
            (format!("{HEADER}.e30.AA"), "missing field"),
            (format!("{HEADER}.?.AA"), "second part"),
            (long, "at most"),
            (sign(&|claims| claims.at.clear()), "at has 1 to"),
            (sign(&|claims| claims.at[0].set_port(0)), "no port"),
            (
                sign(&|claims| claims.name = "a b".to_owned()),
                "name is no name",
            ),
            (sign(&|claims| claims.sub.clear()), "sub has"),
        ] {
            let refused = Token::read(&text).unwrap_err();
            assert_eq!(refused.reason, Refusal::Malformed, "{refused}");
            assert!(refused.what.contains(words), "{words}: {refused}");
        }
    }
}
