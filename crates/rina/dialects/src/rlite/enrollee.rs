//! The initiator's side of an enrollment; rlite calls the initiator enrollee.
//!
//! ```text
//!  I (this one)                                           S
//!    M_CONNECT {own name, the N-1 flow's name}  ------->
//!                                               <-------  M_CONNECT_R {its real name}
//!    M_START enrollment {address, N-1 DIF}      ------->
//!                                               <-------  M_START_R {address, constants}
//!                                               <-------  M_WRITE policies and parameters
//!                                               <-------  M_STOP {start early}
//!    M_STOP_R, from the new address             ------->
//!                                               <-------  M_START operational_status
//!    lower flow, neighbours, directory, addresses  <---->
//! ```
//!
//! A further N-1 flow between two neighbours needs only M_START of `lowerflow` and its answer.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode, Party};
use carina_ipcp::api::{N1Port, N1Properties};
use carina_ipcp::config::DifConfig;
use carina_ipcp::data_transfer::SettingsError;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::trace::TraceEvent;
use carina_time::Instant;
use carina_wire::dif::Dialect;

use super::error::WidthMismatch;
use super::n1::{EnrolleeState, STEP_TIMEOUT, Stage, connection};
use super::objects::{PolicyObject, class, component_of, name};
use super::values::{Constants, EnrollmentInfo, is_name, value, value_of};
use super::{RULES, Rlite};
use crate::interop::names::Name;

impl Rlite {
    /// Sends M_CONNECT, the first message of an attempt.
    pub(super) fn connect(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        if self.has_left {
            return;
        }
        let own = self.own.clone();
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if matches!(flow.stage, Stage::Up | Stage::Leaving) {
            return;
        }
        if let Err(error) = self.configure_early(now, dt) {
            return self.attempt_failed_for_good(now, n1, &error.to_string(), dt);
        }
        let wait = self.connect_wait(n1);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        self.log.trace(|| TraceEvent::EnrollmentStarted {
            n1,
            is_initiator: true,
        });
        flow.cdap = connection();
        flow.crossed = None;
        flow.stage = Stage::Connecting;
        (flow.asked_at, flow.at) = (now, Some(now + wait));
        let props = flow.props.clone();
        let remote = self.called_name(&props);
        let message = Message {
            abstract_syntax: RULES.abstract_syntax,
            version: RULES.version,
            ..Message::connect(Party::from(Name::of(&own)), Party::from(Name::of(remote)))
        };
        self.send_request(now, n1, message, dt);
    }

    /// The name that M_CONNECT over an N-1 flow calls.
    pub(super) fn called_name<'a>(&'a self, props: &'a N1Properties) -> &'a str {
        match props.remote.as_str() {
            // The name is unknown to the N-1 DIF; the DIF's name stands for any member.
            "" => &self.dif,
            remote => remote,
        }
    }

    /// Configures data transfer before the first message if the widths or the checksum of PDUs are
    /// configured, because no message transfers them.
    ///
    /// # Errors
    /// Data transfer refuses the configuration.
    fn configure_early(
        &mut self,
        now: Instant,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), SettingsError> {
        if self.member.is_some() || self.is_configured || self.given.is_none() {
            return Ok(());
        }
        dt.configure(now, &self.template())?;
        self.is_configured = true;
        Ok(())
    }

    /// Handles M_CONNECT_R.
    pub(super) fn on_connected(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if !matches!(flow.stage, Stage::Connecting) {
            return self.log.count("stale");
        }
        flow.has_released = false;
        if message.result != 0 {
            if self.answer_held(now, n1, dt) {
                return;
            }
            let reason = refusal("M_CONNECT", message);
            return self.attempt_failed(now, n1, &reason, dt);
        }
        let peer = Name::from(message.src.clone()).to_string();
        if peer == self.own {
            let reason = format!("the IPCP at the other end is called {peer:?} like this one");
            return self.attempt_failed_for_good(now, n1, &reason, dt);
        }
        if self.member.is_none() && self.is_joining() {
            // Another enrollment is under way, and two enrollers would assign two addresses: this
            // one waits.
            if let Some(flow) = self.n1s.get_mut(&n1) {
                flow.stage = Stage::Idle;
                flow.cdap = connection();
                flow.at = Some(now + STEP_TIMEOUT);
            }
            return;
        }
        let is_neighbour = self.is_neighbour(&peer);
        let address = self.own_address().unwrap_or_else(|| self.first_address());
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.peer = peer;
        flow.at = Some(now + STEP_TIMEOUT);
        let request = if is_neighbour {
            flow.stage = Stage::Adding;
            Message::object(Opcode::Start, class::LOWER_FLOW, name::LOWER_FLOW)
        } else {
            flow.stage = Stage::Starting { address };
            let info = EnrollmentInfo {
                address: Some(address),
                lower_difs: alloc::vec![flow.props.dif.clone()],
                ..EnrollmentInfo::default()
            };
            Message::object(Opcode::Start, class::ENROLLMENT, name::ENROLLMENT)
                .with_value(value(&info))
        };
        self.send_request(now, n1, request, dt);
    }

    /// Handles M_START_R of an enrollment.
    pub(super) fn on_started(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Stage::Starting { address: asked } = self.n1s[&n1].stage else {
            return self.log.count("stale");
        };
        if message.result != 0 {
            let reason = refusal("the enrollment", message);
            return self.attempt_failed(now, n1, &reason, dt);
        }
        let Some(info) = value_of::<EnrollmentInfo>(message) else {
            return self.attempt_failed(now, n1, "its M_START_R has no enrollment value", dt);
        };
        let config = match self.learn(&info) {
            Ok(config) => config,
            Err(error) => {
                return self.attempt_failed_for_good(now, n1, &error.to_string(), dt);
            }
        };
        let address = match info.address.unwrap_or_default() {
            0 => asked,
            assigned => assigned,
        };
        if let Err(error) = self.check_assigned(address, &config) {
            return self.attempt_failed_for_good(now, n1, &error.to_string(), dt);
        }
        let policies = self.policies.clone();
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.at = Some(now + STEP_TIMEOUT);
            flow.stage = Stage::Joining(Box::new(EnrolleeState {
                address,
                config,
                policies,
            }));
        }
    }

    /// The DIF's configuration, with the constants that the enroller sent.
    ///
    /// # Errors
    /// The constant that differs from this IPCP's configuration.
    fn learn(&self, info: &EnrollmentInfo) -> Result<DifConfig, WidthMismatch> {
        let mut config = match &self.member {
            Some(member) => member.config.clone(),
            None => self.template(),
        };
        let Some(constants) = &info.constants else {
            return Ok(config);
        };
        check_widths(constants, &config)?;
        // A member's configuration does not change, since it is in use.
        if self.member.is_none()
            && let Some(lifetime) = constants.max_pdu_lifetime_ms.filter(|ms| *ms > 0)
        {
            config.max_pdu_lifetime_ms = lifetime;
        }
        Ok(config)
    }

    /// Handles M_WRITE: the enroller sends a policy or a parameter. One that this side does not
    /// support is reported, and the enrollment continues.
    pub(super) fn on_policy_write(&mut self, n1: N1Port, message: &Message) {
        let peer = self.peer_name(n1);
        let told = component_of(&message.name);
        let text = message.value.as_ref().and_then(|value| value.as_text());
        let (Some((component, what)), Some(text)) = (told, text) else {
            return self.log.discard(&peer, "object");
        };
        let Some(Stage::Joining(state)) = self.n1s.get_mut(&n1).map(|flow| &mut flow.stage) else {
            return self.log.discard(&peer, "policy-of-no-enroller");
        };
        let followed = match what {
            PolicyObject::Policy => state.policies.set_policy(component, text),
            PolicyObject::Parameter => {
                state
                    .policies
                    .set_parameter(component, &message.class, text)
            }
        };
        if let Err(reason) = followed {
            let text = format!(
                "{peer} announces a policy that this member does not follow: \
                {reason}"
            );
            self.log.notice("policy", &text);
        }
    }

    /// Handles M_STOP: the enroller has sent everything, and this IPCP becomes a member.
    pub(super) fn on_stop(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if !matches!(flow.stage, Stage::Joining(_)) {
            return self.log.count("stale");
        }
        let Stage::Joining(state) = core::mem::replace(&mut flow.stage, Stage::Idle) else {
            return;
        };
        let EnrolleeState {
            address,
            config,
            policies,
        } = *state;
        if self.member.is_none() {
            if let Err(error) = dt.configure(now, &config) {
                let reason = format!("the DIF's configuration does not work here: {error}");
                let answer = message.answer().with_error(-1, &reason);
                self.send_response(now, n1, answer, dt);
                return self.attempt_failed_for_good(now, n1, &reason, dt);
            }
            self.policies = policies;
            self.become_member(now, address, config, dt);
            self.send_response(now, n1, message.answer(), dt);
        } else {
            if self.own_address() != Some(address) {
                self.change_address(now, address, dt);
            }
            self.send_response(now, n1, message.answer(), dt);
        }
        self.neighbour_up(now, n1, dt);
        self.connect_idle_flows(now, dt);
    }

    /// Handles M_START_R of a further N-1 flow.
    pub(super) fn on_added(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if !matches!(self.n1s[&n1].stage, Stage::Adding) {
            return self.log.count("stale");
        }
        if message.result != 0 {
            let reason = refusal("the N-1 flow", message);
            return self.attempt_failed(now, n1, &reason, dt);
        }
        self.neighbour_up(now, n1, dt);
    }

    /// True when an enrollment of this IPCP is under way.
    fn is_joining(&self) -> bool {
        let is_joining =
            |flow: &super::N1| matches!(flow.stage, Stage::Starting { .. } | Stage::Joining(_));
        self.n1s.values().any(is_joining)
    }

    /// True when `name` is a neighbour through any N-1 flow.
    pub(super) fn is_neighbour(&self, name: &str) -> bool {
        self.n1s.values().any(|flow| flow.neighbour() == Some(name))
    }

    /// The well-formed N-1 DIF names of a record, limited in number.
    pub(super) fn note_lower_difs(difs: Vec<String>) -> Vec<String> {
        let good = difs.into_iter().filter(|dif| is_name(dif));
        good.take(super::dissemination::LOWER_DIFS_MAX).collect()
    }
}

/// The text for an answer that refuses `what`.
fn refusal(what: &str, message: &Message) -> String {
    match message.reason.as_str() {
        "" => format!("the other side refused {what} (result {})", message.result),
        reason => format!("the other side refused {what}: {reason}"),
    }
}

/// Compares the widths that the enroller announces with the configured ones; PDUs with other widths
/// would be unreadable. The default widths of the dialect are accepted in any case: rlite's
/// enroller announces them whatever its PDUs have, and its PDUs so far were readable with the
/// configured widths.
fn check_widths(constants: &Constants, config: &DifConfig) -> Result<(), WidthMismatch> {
    let announced = [
        constants.address,
        constants.seq,
        constants.ctrl_seq,
        constants.length,
        constants.cep,
        constants.qos,
    ];
    let default = widths(&DifConfig::of_dialect(Dialect::Rlite));
    if announced == default.map(|(_, bytes)| Some(bytes)) {
        return Ok(());
    }
    for (theirs, (field, ours)) in announced.into_iter().zip(widths(config)) {
        if let Some(theirs) = theirs.filter(|theirs| *theirs != ours) {
            return Err(WidthMismatch {
                field,
                theirs,
                ours,
            });
        }
    }
    Ok(())
}

/// Widths in bytes of the fields that are constants of the DIF, with names for messages.
fn widths(config: &DifConfig) -> [(&'static str, u32); 6] {
    let widths = &config.widths;
    [
        ("address", widths.address),
        ("sequence number", widths.seq),
        ("control sequence number", widths.ctrl_seq),
        ("PDU length", widths.length),
        ("CEP-id", widths.cep),
        ("QoS-id", widths.qos),
    ]
    .map(|(field, bytes)| (field, u32::from(bytes)))
}
