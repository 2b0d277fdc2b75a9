//! Changes of policies while the DIF runs.

use alloc::boxed::Box;
use alloc::string::{String, ToString};

use carina_cdap::Message;
use carina_ipcp::api::Scalar;
use carina_ipcp::config::PolicySpec;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::policy::{PolicyError, component};
use carina_ipcp::trace::TraceEvent;
use carina_routing::Routing;
use carina_time::Instant;

use super::access_control::Operation;
use super::requester::Requester;
use super::rib_error::PolicyChangeError;
use super::schema::{self, result};
use super::{Management, policies};

impl Management {
    /// Handles M_WRITE from a member to a policy of this member.
    pub(super) fn on_policy_write(
        &mut self,
        now: Instant,
        requester: &Requester,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if requester.name != self.own
            && !self
                .policies
                .access
                .allows(&requester.name, Operation::Write)
        {
            let reason = "the requester may not write the policies of this member; see policy \
                access-control";
            return self.reject_to(now, requester, message, result::ACCESS, reason, dt);
        }
        let objects = schema::decode_objects(schema::bytes(message)).unwrap_or_default();
        let Some(object) = objects.first() else {
            let reason = "the value is no object";
            return self.reject_to(now, requester, message, result::VALUE, reason, dt);
        };
        match self.set_policy(now, name, &object.fields, dt) {
            Ok(()) => self.respond_to(now, requester, &message.answer(), dt),
            Err(error) => {
                let reason = error.to_string();
                self.reject_to(now, requester, message, result::ERROR, &reason, dt);
            }
        }
    }

    /// Changes the policy of component `name` at this member. Field `name` selects the policy, the
    /// other fields set its parameters.
    pub(super) fn set_policy(
        &mut self,
        now: Instant,
        name: &str,
        fields: &[(String, Scalar)],
        dt: &mut dyn DataTransfer,
    ) -> Result<(), PolicyChangeError> {
        let Some(member) = &self.member else {
            return Err(PolicyChangeError::NotMember);
        };
        let present = member
            .config
            .policies
            .get(name)
            .cloned()
            .unwrap_or_default();
        let (before, _) = self.catalogue.resolve(name, &present)?;
        let present = PolicySpec {
            name: before.name.to_string(),
            params: present.params,
        };
        let spec = present.changed(fields);
        let (descriptor, params) = self.catalogue.resolve(name, &spec)?;
        if !descriptor.is_live {
            return Err(PolicyChangeError::NotLive {
                component: name.to_string(),
                policy: descriptor.name,
            });
        }
        let values = params.values().clone();
        let is_same = before.name == spec.name;
        let mut config = member.config.clone();
        config.policies.insert(name.to_string(), spec.clone());
        if name == component::ROUTING && is_same {
            match &mut self.routing {
                Some(routing) => routing.set_params(now, &values)?,
                None => return Err(PolicyChangeError::NoRouting),
            }
        } else if name == component::ROUTING {
            self.change_routing(now, &config, dt)?;
        } else if policies::is_own(name) {
            self.policies = policies::Policies::make(&self.catalogue, &config)?;
        } else {
            dt.set_policy(now, name, &spec)?;
        }
        self.log.trace(|| TraceEvent::PolicyChanged {
            component: name,
            policy: &spec.name,
        });
        self.log.count("policies-changed");
        if let Some(member) = &mut self.member {
            member.config = config;
        }
        Ok(())
    }

    /// Replaces the routing policy. The new policy receives all neighbours.
    fn change_routing(
        &mut self,
        now: Instant,
        config: &carina_ipcp::DifConfig,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), PolicyError> {
        let mut routing: Box<dyn Routing> = self.catalogue.make_for(component::ROUTING, config)?;
        if let Some(member) = &self.member {
            routing.set_own(now, member.address, &self.own);
        }
        self.routing = Some(routing);
        self.is_routing_new = true;
        self.report_all_links(now, dt);
        Ok(())
    }
}
