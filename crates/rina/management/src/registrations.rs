//! Registrations of this member's applications in the directory.
//!
//! ```text
//!                     not a member                           enrolled
//!   Register ---------------------> answered: registered --------+
//!      | member                                                  |
//!      v                            a home accepts, no home      v
//!   sent to the homes ---------------------------------------------> answered: registered
//!      |                            answers, or no route exists     (once)
//!      | all homes are full
//!      v
//!   answered: the limit; the registration is deleted
//! ```
//!
//! With policy `replicated` this member is its own home, and the answer follows at once. A
//! registration that a home accepted once stays registered even if the homes change and a new home
//! refuses it; every renewal repeats it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::Opcode;
use carina_ipcp::api::Event;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::trace::TraceEvent;
use carina_time::Instant;
use carina_wire::check_name;

use super::Management;
use super::directory::{HOMES, PendingRegistration, RENEW_INTERVAL};
use super::entries::{Kind, PER_ORIGIN_MAX, StoreFull};
use super::policies::DirectoryPolicy;
use super::queries::{HomeAnswer, Purpose};
use super::schema::{self, Object};

impl Management {
    pub(super) fn register(&mut self, now: Instant, name: String, dt: &mut dyn DataTransfer) {
        if let Err(error) = check_name(&name) {
            return self.registration_refused(&name, &error.to_string());
        }
        if self.registered.len() >= PER_ORIGIN_MAX && !self.registered.contains(&name) {
            return self.registration_refused(&name, &StoreFull::Member.to_string());
        }
        self.registered.insert(name.clone());
        self.directory.answered.remove(&name);
        let is_decided = match self.policies.directory {
            _ if self.member.is_none() => true,
            DirectoryPolicy::Replicated => self.publish_registration(now, &name, dt),
            DirectoryPolicy::OnDemand { .. } => {
                self.directory.taken.remove(&name);
                self.publish_registration(now, &name, dt);
                false
            }
        };
        if is_decided {
            self.report_registered(&name);
        }
    }

    /// Reports to the owner, once, that an application is registered.
    fn report_registered(&mut self, name: &str) {
        if !self.directory.answered.insert(name.to_string()) {
            return;
        }
        self.log.push(Event::Registered {
            name: name.to_string(),
            result: Ok(()),
        });
    }

    /// Deletes a registration that the DIF refuses, and reports the reason to the owner.
    fn registration_refused(&mut self, name: &str, reason: &str) {
        self.registered.remove(name);
        self.directory.answered.remove(name);
        self.directory.touch(name);
        self.log.count("registrations-refused");
        self.log.push(Event::Notice {
            text: format!("{name:?} cannot be registered: {reason}"),
        });
        self.log.push(Event::Registered {
            name: name.to_string(),
            result: Err(reason.into()),
        });
    }

    pub(super) fn unregister(&mut self, now: Instant, name: &str, dt: &mut dyn DataTransfer) {
        self.directory.answered.remove(name);
        if !self.registered.remove(name) {
            return;
        }
        self.log.trace(|| TraceEvent::NameUnregistered { name });
        if self.member.is_none() {
            return;
        }
        self.directory.touch(name);
        match self.policies.directory {
            DirectoryPolicy::Replicated => {
                if let Some(entry) = self.store.delete(now, Kind::Application, name) {
                    self.flood(now, &[entry], None, dt);
                }
            }
            DirectoryPolicy::OnDemand { .. } => {
                self.directory.registering.remove(name);
                self.directory.taken.remove(name);
                self.directory.backlog.remove(name);
                // A registration that is still repeated must not undo this withdrawal.
                self.queries.cancel_registration(name);
                for home in self.homes(name) {
                    let object = Object::Application(Some(name.to_string()));
                    let message = schema::request(Opcode::Delete, &object, None);
                    let what = Purpose::Withdrawal {
                        name: name.to_string(),
                    };
                    self.query(now, alloc::vec![home], message, what, dt);
                }
            }
        }
    }

    /// Registers all applications of this member in the directory.
    pub(super) fn publish_registrations(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        for name in self.registered.clone() {
            self.publish_registration(now, &name, dt);
        }
        self.directory.renew_at = match self.policies.directory {
            DirectoryPolicy::Replicated => None,
            DirectoryPolicy::OnDemand { .. } => Some(now + self.random.about(RENEW_INTERVAL)),
        };
    }

    /// Registers an application in the directory. Returns false if this IPCP's own store refuses
    /// the registration.
    fn publish_registration(
        &mut self,
        now: Instant,
        name: &str,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        self.directory.touch(name);
        match self.policies.directory {
            DirectoryPolicy::Replicated => {
                match self.store.put(Kind::Application, name, Vec::new()) {
                    Ok(entry) => self.flood(now, &[entry], None, dt),
                    Err(error) => {
                        self.registration_refused(name, &error.to_string());
                        return false;
                    }
                }
            }
            DirectoryPolicy::OnDemand { .. } if self.queries.has_room_for(HOMES) => {
                self.register_at_homes(now, name, dt);
            }
            DirectoryPolicy::OnDemand { .. } => {
                self.directory.backlog.insert(name.to_string());
            }
        }
        true
    }

    fn register_at_homes(&mut self, now: Instant, name: &str, dt: &mut dyn DataTransfer) {
        let homes = self.homes(name);
        self.queries.cancel_registration(name);
        self.directory.round += 1;
        let round = self.directory.round;
        let registering = PendingRegistration {
            round,
            open: homes.len(),
            is_taken: false,
            refusal: String::new(),
        };
        let telling = &mut self.directory.registering;
        telling.insert(name.to_string(), registering);
        if homes.is_empty() {
            return self.home_answered(name, round, HomeAnswer::Nothing);
        }
        // A home without a route is not waited for; a later renewal registers there.
        let has_left = |home: &String| {
            let address = self.address_of(home);
            address.and_then(|address| self.distance(address)).is_none()
        };
        let is_settled = now >= self.directory.routes_known_at;
        if is_settled && homes.iter().all(has_left) && self.directory.taken.insert(name.to_string())
        {
            self.report_registered(name);
            let text = format!(
                "there is no route to {}, which stores the directory entry of {name:?}: until \
                 there is one, other members may not find the name",
                homes.join(" and ")
            );
            self.log.notice("registration", &text);
        }
        for home in homes {
            let object = Object::Application(Some(name.to_string()));
            let message = schema::request(Opcode::Create, &object, None);
            let what = Purpose::Registration {
                name: name.to_string(),
                round,
            };
            self.query(now, alloc::vec![home], message, what, dt);
        }
    }

    /// Handles the answer of a home to a registration.
    pub(super) fn home_answered(&mut self, name: &str, round: u64, answer: HomeAnswer) {
        let telling = self.directory.registering.get_mut(name);
        let Some(telling) = telling.filter(|telling| telling.round == round) else {
            return;
        };
        telling.open = telling.open.saturating_sub(1);
        let is_last = telling.open == 0;
        match answer {
            HomeAnswer::Taken => {
                telling.is_taken = true;
                // Does not wait for the other home, which may have left and never answer.
                if self.directory.taken.insert(name.to_string()) {
                    self.report_registered(name);
                }
            }
            HomeAnswer::Nothing => telling.is_taken = true,
            HomeAnswer::Full(reason) => telling.refusal = reason,
        }
        if !is_last {
            return;
        }
        let Some(told) = self.directory.registering.remove(name) else {
            return;
        };
        let is_first = !self.directory.taken.contains(name);
        match told.is_taken {
            // No home has answered: reported as registered, and the renewal registers again.
            true if is_first => {
                self.directory.taken.insert(name.to_string());
                self.report_registered(name);
            }
            true => {}
            false if is_first => self.registration_refused(name, &told.refusal),
            false => self.log.notice(
                "registration",
                &format!(
                    "the members that store the directory entry of {name:?} are full; this \
                     member retries the registration: {}",
                    told.refusal
                ),
            ),
        }
    }

    /// Registers names at their homes that waited for other requests to end.
    pub(super) fn register_backlog(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        while !self.directory.backlog.is_empty() && self.queries.has_room_for(HOMES) {
            if let Some(name) = self.directory.backlog.pop_first()
                && self.registered.contains(&name)
            {
                self.register_at_homes(now, &name, dt);
            }
        }
    }

    /// Reports pending registrations as done, because the membership ends. The next membership
    /// registers them again.
    pub(super) fn complete_registrations(&mut self) {
        for name in self.registered.clone() {
            self.report_registered(&name);
        }
    }
}
