//! Negotiation over an N-1 flow: the names of both IPCPs, the authentication policy and the SDU
//! protection.

use alloc::boxed::Box;
use alloc::vec::Vec;

use carina_ipcp::Cause;
use carina_ipcp::api::N1Port;
use carina_ipcp::config::PolicySpec;
use carina_ipcp::policy::component;
use carina_ipcp::security::{Authenticator, SduProtection};

use super::super::Management;
use super::super::entries::Kind;
use super::super::schema::{self, Greeting};
use super::error::{AttemptError, TooSmall};

impl Management {
    /// What this IPCP says about itself over `n1`.
    pub(super) fn greeting(&self, n1: N1Port) -> Greeting {
        let props = &self.n1s[&n1].props;
        let mut greeting = Greeting {
            syntax: schema::SYNTAX,
            dif: self.dif.clone(),
            name: self.own.clone(),
            incarnation: self.incarnation,
            sdu_max: u32::try_from(props.sdu_max).unwrap_or(u32::MAX),
            is_exposed: props.is_exposed,
            ..Greeting::default()
        };
        if let Some(member) = &self.member {
            greeting.dif_id = member.dif_id;
            greeting.address = member.address;
            greeting.max_pdu = member.config.max_pdu;
            greeting.members = self.members_known();
        }
        greeting
    }

    /// Number of visible members, this one included.
    pub(super) fn members_known(&self) -> u32 {
        let others = self.store.visible(Kind::Member);
        let others = others.filter(|(origin, _, _)| *origin != self.own).count();
        u32::try_from(others + 1).unwrap_or(u32::MAX)
    }

    /// The authentication policy in force; `None` when none is required.
    pub(super) fn authentication(&self) -> Option<PolicySpec> {
        let given = self
            .given
            .as_ref()
            .and_then(|config| config.policies.get(component::AUTHENTICATION));
        let of_dif = self
            .member
            .as_ref()
            .and_then(|member| member.config.policies.get(component::AUTHENTICATION));
        given.or(of_dif).filter(|spec| !is_none(spec)).cloned()
    }

    /// Makes the authenticator of an attempt. Names and nonces bind it to the attempt.
    ///
    /// # Errors
    /// The toolbox cannot make the authenticator.
    pub(super) fn authenticator(
        &mut self,
        spec: &PolicySpec,
        is_initiator: bool,
        names: (&str, &str),
        nonces: (u64, u64),
    ) -> Result<Box<dyn Authenticator>, Cause> {
        let mut context = Vec::new();
        for name in [self.dif.as_str(), names.0, names.1] {
            context.extend_from_slice(&(name.len() as u32).to_be_bytes());
            context.extend_from_slice(name.as_bytes());
        }
        context.extend_from_slice(&nonces.0.to_be_bytes());
        context.extend_from_slice(&nonces.1.to_be_bytes());
        self.toolbox.authenticator(spec, is_initiator, &context)
    }

    /// Makes the SDU protection of an N-1 flow; `None` when the flow needs none.
    ///
    /// # Errors
    /// The protection cannot be made, or leaves too little room for the DIF's longest PDU.
    pub(super) fn sdu_protection(
        &mut self,
        n1: N1Port,
        is_exposed: bool,
        is_initiator: bool,
        secret: Option<&[u8; 32]>,
        config: &carina_ipcp::DifConfig,
    ) -> Result<Option<Box<dyn SduProtection>>, AttemptError> {
        let spec = config
            .policies
            .get(component::SDU_PROTECTION)
            .filter(|spec| !is_none(spec));
        let protection = match spec {
            Some(spec) if is_exposed => self.toolbox.sdu_protection(spec, is_initiator, secret)?,
            _ => None,
        };
        let overhead = protection
            .as_ref()
            .map_or(0, |protection| protection.overhead());
        let (has, needs) = (
            self.n1s[&n1].props.sdu_max,
            config.max_pdu as usize + overhead,
        );
        if has < needs {
            return Err(TooSmall { has, needs }.into());
        }
        Ok(protection)
    }
}

/// True when `spec` selects no policy: its name is empty or `none`.
pub(super) fn is_none(spec: &PolicySpec) -> bool {
    spec.name.is_empty() || spec.name == "none"
}
