//! Format of authentication messages: version, policy, number, and fields of fixed length.
//!
//! ```text
//!   0         1         2
//!  +---------+---------+---------+------------------
//!  | version | policy  | number  | fields
//!  +---------+---------+---------+------------------
//! ```

use aws_lc_rs::digest;

use super::AuthError;

/// Numbers of policies in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Policy `password`.
    Password = 1,
    /// Policy `ed25519`.
    Ed25519 = 2,
}

/// Encodes a message with these fields.
pub(super) fn write(kind: Kind, number: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut message = vec![VERSION, kind as u8, number];
    for field in fields {
        message.extend_from_slice(field);
    }
    message
}

/// Decodes the expected message and returns its fields.
///
/// # Errors
/// The message is another one, or has a wrong length.
pub(super) fn read<const N: usize>(
    kind: Kind,
    number: u8,
    message: &[u8],
) -> Result<&[u8; N], AuthError> {
    let (head, fields) = message.split_first_chunk::<3>().ok_or(AuthError::Short)?;
    let [version, policy, given] = *head;
    if version != VERSION {
        return Err(AuthError::Version(version));
    }
    if policy != kind as u8 {
        return Err(AuthError::OtherPolicy);
    }
    if given != number {
        return Err(AuthError::Order { given, due: number });
    }
    fields.try_into().map_err(|_| AuthError::Length {
        number,
        given: fields.len(),
        due: N,
    })
}

/// Hash of several texts. The length of each is hashed too, so that different lists of texts have
/// different hashes.
pub(super) fn hash(texts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

const VERSION: u8 = 1;
