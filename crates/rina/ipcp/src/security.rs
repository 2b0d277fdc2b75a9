//! Interfaces for cryptography and checksums, which are implemented outside of the IPCP.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use carina_time::Instant;

use crate::cause::Cause;
use crate::config::PolicySpec;

/// SDU protection of one N-1 flow: transforms each PDU before it is sent and reverses that on
/// receipt. One instance serves both directions of an N-1 flow.
pub trait SduProtection {
    /// Largest number of bytes that protection adds. A protected PDU may still be 46 bytes long
    /// however short the PDU is, so that no medium has to pad it.
    fn overhead(&self) -> usize;

    /// Sets the time. Call it before a burst of [`SduProtection::protect`] or
    /// [`SduProtection::unprotect`]; only policies that limit the lifetime of PDUs use it.
    fn set_now(&mut self, _now: Instant) {}

    /// Protects a PDU in place.
    ///
    /// # Errors
    /// The key may not protect further PDUs; the N-1 flow needs a new key.
    fn protect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject>;

    /// Checks a protected PDU and removes the protection, in place. The PDU is untrusted.
    ///
    /// # Errors
    /// Why the PDU must be dropped.
    fn unprotect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject>;
}

/// Why SDU protection rejects a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reject {
    /// The PDU is too short to be protected.
    Short,
    /// The checksum is wrong.
    Checksum,
    /// The PDU does not decrypt: forged, damaged, or encrypted under another key.
    Forged,
    /// The PDU was received before, or is too old to tell.
    Replayed,
    /// The lifetime of the PDU has expired.
    Expired,
    /// The PDU does not decompress, or becomes longer than allowed.
    Inflated,
    /// The key has protected as many PDUs as it may; the N-1 flow needs a new key.
    Exhausted,
}

/// One side of an authentication between two IPCPs that connect. Its messages travel as CDAP
/// authentication values; until it ends, the N-1 flow accepts nothing else.
pub trait Authenticator {
    /// Handles a message from the other side. The initiator starts with `None`.
    fn step(&mut self, now: Instant, message: Option<&[u8]>) -> AuthStep;
}

/// What an IPCP must do after a step of authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthStep {
    /// Send this message and wait for the answer.
    Send(Vec<u8>),
    /// Authentication has succeeded.
    Done {
        /// Last message to send to the other side, if any.
        last: Option<Vec<u8>>,
        /// Secret that both sides share now, for encryption on the N-1 flow; `None` when the policy
        /// yields none.
        secret: Option<[u8; 32]>,
        /// The identity that the other side proved; empty when the policy proves nothing.
        identity: String,
    },
    /// Authentication has failed. The text is for the local log only; the peer receives no details.
    Fail(String),
}

/// Name of an authentication policy that only the IRATI dialect has: the peer returns a random
/// challenge combined with the password by exclusive or.
pub const XOR_PASSWORD: &str = "xor-password";

/// Makes authenticators and SDU protection. The owner of an IPCP provides it.
pub trait Toolbox {
    /// Makes an authenticator of policy `spec` (component `authentication`) for one attempt.
    /// `context` binds the attempt to the DIF and the names of both IPCPs.
    ///
    /// # Errors
    /// The policy or its credentials are invalid.
    fn authenticator(
        &mut self,
        spec: &PolicySpec,
        is_initiator: bool,
        context: &[u8],
    ) -> Result<Box<dyn Authenticator>, Cause>;

    /// Makes the SDU protection of policy `spec` (component `sdu-protection`) for one N-1 flow.
    /// `None`: no protection.
    ///
    /// # Errors
    /// The policy is invalid, or needs a secret that is not available.
    fn sdu_protection(
        &mut self,
        spec: &PolicySpec,
        is_initiator: bool,
        secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn SduProtection>>, Cause>;

    /// Describes the policies of this toolbox, to be added to the catalogue.
    fn list(&self) -> Vec<PolicyRow>;

    /// The function that checks parameter values of the toolbox's policies. The default accepts
    /// all.
    fn params_check(&self) -> ParamsCheck {
        |_, _| Ok(())
    }
}

/// Checks a policy of the toolbox with its parameter values; the first argument is the name of its
/// component.
pub type ParamsCheck = fn(&str, &PolicySpec) -> Result<(), Cause>;

/// A policy in [`Toolbox::list`]: component, name, help, and for each parameter its name, default
/// and help.
pub type PolicyRow = (
    &'static str,
    &'static str,
    &'static str,
    Vec<(&'static str, &'static str, &'static str)>,
);
