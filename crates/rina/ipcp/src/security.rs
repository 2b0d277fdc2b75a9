//! What an IPCP needs of cryptography and checksums, which live outside of it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use carina_time::Instant;

use crate::cause::Cause;
use crate::config::PolicySpec;

/// SDU protection of one N-1 flow: what is done to a PDU before it goes down and undone when it
/// comes up. One per N-1 flow and direction pair.
pub trait SduProtection {
    /// Bytes that it adds at most; but the result may be as long as 46 bytes however short the
    /// PDU is, so that no medium has to pad it.
    fn overhead(&self) -> usize;

    /// The time. To be set before a burst of `seal` or `open`; only policies that
    /// limit the lifetime of PDUs listen.
    fn set_now(&mut self, _now: Instant) {}

    /// Protects a PDU in place.
    ///
    /// # Errors
    /// When no more PDUs may be sent under this key; the N-1 flow must be re-keyed.
    fn protect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject>;

    /// Checks a protected PDU and strips the protection, in place. Hostile input is expected.
    ///
    /// # Errors
    /// Why the PDU is to be discarded; counted under that reason.
    fn unprotect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject>;
}

/// Why protection discards a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reject {
    /// Too short to be protected.
    Short,
    /// The checksum is wrong.
    Checksum,
    /// It does not decrypt: forged, damaged, or another key.
    Forged,
    /// It was here before, or is too old to tell.
    Replayed,
    /// Its lifetime is over.
    Expired,
    /// It does not decompress, or to more than allowed.
    Inflated,
    /// The key is used up.
    Exhausted,
}

/// One side of an authentication while two IPCPs connect. Messages travel as CDAP authentication
/// values; nothing else is accepted on the N-1 flow before it is over.
pub trait Authenticator {
    /// Acts on a message of the other side; the initiator starts with `None`.
    fn step(&mut self, now: Instant, message: Option<&[u8]>) -> AuthStep;
}

/// What an authentication does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthStep {
    /// Send this and wait.
    Send(Vec<u8>),
    /// Over: send this last message (when there is one) and use these keys (when there are).
    Done {
        /// A last message for the other side.
        last: Option<Vec<u8>>,
        /// Secret that both sides share now, for the N-1 flow's encryption.
        secret: Option<[u8; 32]>,
        /// The identity that the other side proved; empty when the policy proves nothing.
        identity: String,
    },
    /// The other side is not who it should be. The text is for the local log; the peer hears only
    /// that authentication failed.
    Fail(String),
}

/// The name of an authentication policy that only IRATI's dialect has: a password combined with a
/// challenge by exclusive or.
pub const XOR_PASSWORD: &str = "xor-password";

/// Makes authenticators and sealers; given to an IPCP by its owner.
pub trait Toolbox {
    /// An authenticator of policy `spec` (component `authentication`) for one attempt.
    /// `context` binds it to the DIF and both names.
    ///
    /// # Errors
    /// What is wrong with the policy or its credentials.
    fn authenticator(
        &mut self,
        spec: &PolicySpec,
        is_initiator: bool,
        context: &[u8],
    ) -> Result<Box<dyn Authenticator>, Cause>;

    /// A sealer of policy `spec` (component `sdu-protection`) for one N-1 flow.
    ///
    /// # Errors
    /// What is wrong with the policy, or that it needs a secret and none is configured.
    fn sdu_protection(
        &mut self,
        spec: &PolicySpec,
        is_initiator: bool,
        secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn SduProtection>>, Cause>;

    /// Policies that this toolbox has, for the catalogue.
    fn list(&self) -> Vec<PolicyRow>;

    /// What judges the values of their parameters, by component and policy. None is wrong unless
    /// a toolbox says so.
    fn judge(&self) -> Judge {
        |_, _| Ok(())
    }
}

/// Says what is wrong with a policy of a component.
pub type Judge = fn(&str, &PolicySpec) -> Result<(), Cause>;

/// A policy as [`Toolbox::list`] tells of it: component, name, what it does, and for each parameter
/// its name, its default and its meaning.
pub type PolicyRow = (
    &'static str,
    &'static str,
    &'static str,
    Vec<(&'static str, &'static str, &'static str)>,
);
