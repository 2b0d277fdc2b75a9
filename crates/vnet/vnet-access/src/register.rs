//! The register of an access point: who may join and who has joined, in a file. A decision is
//! stored before it is announced.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use carina_vnet::host_part::InterfaceAddress;
use serde::{Deserialize, Serialize};

use crate::access_point::PeerConfig;
use crate::control::{Joined, JoinedDif};
use crate::key::{HostKeys, PublicKey};
use crate::passage::{Passage, SHIM_PORT};
use crate::refusal::{Refusal, Refused};
use crate::routes::aggregate;
use crate::token::{ADDRESSES_MAX, Claims, Token, new_id};
use carina_vnet::access::Right;

pub use self::error::RegisterError;
pub use self::facts::{DifFacts, Facts};
use self::state::{State, UserState};

mod error;
mod facts;
mod state;

/// Decides which users may join an access point, and stores the used and revoked tokens and the
/// sessions in a file.
#[derive(Debug)]
pub struct Register {
    path: PathBuf,
    keys: HostKeys,
    facts: Facts,
    state: State,
}

/// The session of a user who has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Public key of the user's system.
    pub key: PublicKey,
    /// The `jti` of the token: the random text by which the register recognises it.
    jti: String,
    /// When the user joined, in seconds since 1970.
    pub since: u64,
    /// When the token expires, in seconds since 1970.
    pub until: u64,
    /// The rights of the token.
    #[serde(default = "ip")]
    pub rights: BTreeSet<Right>,
}

/// A token was accepted: the user's settings, and whether the user's system is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The settings that the user's system gets.
    pub joined: Joined,
    /// Name of the end user to whom the token belongs.
    pub user: String,
    /// True for a new system; false if the system has already joined and repeats its request.
    pub is_new: bool,
    /// Public key of the user's earlier system, which the new one replaces; `None` if there was no
    /// other system.
    pub replaced: Option<PublicKey>,
}

impl Register {
    /// Opens the register in a file, or creates it for an access point on the port that `port`
    /// returns.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn open(
        path: &Path,
        keys: HostKeys,
        facts: Facts,
        port: impl FnOnce() -> u16,
    ) -> Result<Register, RegisterError> {
        let state = State::read(path)?;
        let is_kept = state.as_ref().is_some_and(|state| state.port != 0);
        let mut state = state.unwrap_or_default();
        if !is_kept {
            state.port = port();
        }
        let register = Register {
            state,
            path: path.to_owned(),
            keys,
            facts,
        };
        if !is_kept {
            register.keep()?;
        }
        Ok(register)
    }

    /// Ends the register of an access point that was removed. The file still records which tokens
    /// were used and revoked, for a later access point of the same name.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn retire(path: &Path) -> Result<(), RegisterError> {
        let Some(mut state) = State::read(path)? else {
            return Ok(());
        };
        if state.port == 0 {
            return Ok(());
        }
        state.port = 0;
        state
            .users
            .values_mut()
            .for_each(|user| user.session = None);
        state.keep(path)
    }

    /// UDP port on which the access point listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.state.port
    }

    /// The properties of the access point.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Makes a token for a user, valid for `lease_s` seconds from now. Without rights it grants the
    /// right to IP.
    ///
    /// # Errors
    /// There is no such user, or the lease, addresses or rights are not possible.
    pub fn issue(
        &self,
        now: u64,
        user: &str,
        lease_s: u64,
        (at, rights): (Vec<SocketAddr>, BTreeSet<Right>),
    ) -> Result<Token, RegisterError> {
        if !self.facts.users.contains_key(user) {
            return Err(self.no_user(user));
        }
        if !(1..=LEASE_MAX_S).contains(&lease_s) {
            return Err(RegisterError::Lease(lease_s));
        }
        if !(1..=ADDRESSES_MAX).contains(&at.len()) {
            return Err(RegisterError::Addresses(at.len()));
        }
        let rights = if rights.is_empty() { ip() } else { rights };
        if rights.contains(&Right::Dif) && self.facts.dif.is_none() {
            return Err(RegisterError::NoDif {
                access: self.facts.access.clone(),
                network: self.facts.network.clone(),
                node: self.facts.node.address(),
            });
        }
        let claims = Claims {
            iss: self.facts.issuer.clone(),
            by: self.keys.signer()?,
            sub: user.to_owned(),
            vnet: self.facts.vnet,
            name: self.facts.network.clone(),
            access: self.facts.access.clone(),
            at,
            key: self.keys.tunnel().public(),
            exp: now + lease_s,
            rights,
            round: self.state.users.get(user).map_or(0, |user| user.round),
            jti: new_id()?,
        };
        Ok(Token::sign(claims, &self.keys)?)
    }

    /// Admits the system with this key if its token is valid; the inner result says why not.
    ///
    /// # Errors
    /// The decision cannot be stored; in that case nothing has changed.
    pub fn admit(
        &mut self,
        now: u64,
        key: PublicKey,
        token: &str,
    ) -> Result<Result<Taken, Refused>, RegisterError> {
        let claims = match self.check_claims(now, key, token) {
            Ok(claims) => claims,
            Err(refused) => return Ok(Err(refused)),
        };
        let before = self.state.clone();
        let user = self.state.users.entry(claims.sub.clone()).or_default();
        let replaced = match &user.session {
            Some(session) if session.key == key && session.jti == claims.jti => None,
            other => Some(other.as_ref().map(|other| other.key)),
        };
        let is_new = replaced.is_some();
        if is_new {
            user.used.retain(|_, until| *until > now);
            user.used.insert(claims.jti.clone(), claims.exp);
            user.session = Some(Session {
                key,
                jti: claims.jti.clone(),
                since: now,
                until: claims.exp,
                rights: claims.rights.clone(),
            });
            self.keep_or(before)?;
        }
        Ok(Ok(Taken {
            joined: self.joined(&claims.sub, &claims.rights, claims.exp),
            user: claims.sub,
            is_new,
            replaced: replaced.flatten().filter(|old| *old != key),
        }))
    }

    fn check_claims(&self, now: u64, key: PublicKey, token: &str) -> Result<Claims, Refused> {
        let token = Token::read(token)?;
        let claims = token.claims();
        let facts = &self.facts;
        let refuse = |reason, what: String| Err(Refused::new(reason, what));
        if self.keys.signer().ok() != Some(claims.by) {
            let what = format!(
                "the token is signed with a key of {}, which is not the key of this host",
                claims.iss
            );
            return refuse(Refusal::OtherIssuer, what);
        }
        if (claims.vnet, &claims.access) != (facts.vnet, &facts.access) {
            let what = format!(
                "the token is for access point {} of network {} ({}), but this is access point {} \
                 of network {} ({})",
                claims.access, claims.name, claims.vnet, facts.access, facts.network, facts.vnet
            );
            return refuse(Refusal::OtherNetwork, what);
        }
        let user = &claims.sub;
        if claims.exp <= now {
            let ago = now - claims.exp;
            return refuse(Refusal::Expired, format!("the token expired {ago} s ago"));
        }
        if !facts.users.contains_key(user) {
            let what = format!("{user} is not a user of access point {}", facts.access);
            return refuse(Refusal::NoUser, what);
        }
        let state = self.state.users.get(user);
        if state.is_some_and(|state| state.round > claims.round) {
            return refuse(Refusal::Revoked, "the token was revoked".to_owned());
        }
        if self.given(&claims.rights).is_empty() {
            let what = "the token grants none of the rights that this access point offers";
            return refuse(Refusal::Rights, what.to_owned());
        }
        let is_same = |session: &Session| session.key == key && session.jti == claims.jti;
        let was_used = state.is_some_and(|state| {
            state.used.contains_key(&claims.jti) && !state.session.as_ref().is_some_and(is_same)
        });
        if was_used {
            let what = "the token was used before: another system joined with it, or the user \
                 joined with a newer token";
            return refuse(Refusal::Used, what.to_owned());
        }
        Ok(claims.clone())
    }

    /// Of `rights`, the ones that the access point can give: `dif` only if its node is a member of
    /// a DIF.
    fn given(&self, rights: &BTreeSet<Right>) -> BTreeSet<Right> {
        let has = |right: &&Right| **right == Right::Ip || self.facts.dif.is_some();
        rights.iter().filter(has).copied().collect()
    }

    fn joined(&self, user: &str, rights: &BTreeSet<Right>, until: u64) -> Joined {
        let facts = &self.facts;
        let rights = self.given(rights);
        let (own, node) = (facts.users[user], facts.node.address());
        let address = InterfaceAddress::new(own, facts.node.bits());
        let routes = if rights.contains(&Right::Ip) {
            aggregate(facts.prefixes.iter().copied(), ROUTES_MAX)
        } else {
            // A user with only `dif` needs a route to the node's shim.
            InterfaceAddress::new(node, 32).into_iter().collect()
        };
        let dif = facts.dif.as_ref().filter(|_| rights.contains(&Right::Dif));
        Joined {
            address: address.expect("the bits are those of an address"),
            node,
            mtu: facts.mtu,
            routes,
            until,
            rate_bps: facts.rate_bps,
            dif: dif.map(|dif| JoinedDif {
                name: dif.name.clone(),
                via: dif.member.clone(),
                port: SHIM_PORT,
                // Node names contain no dots, and each address belongs to one user, so that the
                // name is unique.
                member: format!("{}.{own}", facts.access),
            }),
        }
    }

    /// The current settings (address, routes, rate and others) of each joined user, by the public
    /// key of the user's system. The access point sends them when the network changes.
    #[must_use]
    pub fn news(&self) -> Vec<(PublicKey, Joined)> {
        let joined = |(user, _, session): (&str, Ipv4Addr, Option<&Session>)| {
            let session = session?;
            let joined = self.joined(user, &session.rights, session.until);
            Some((session.key, joined))
        };
        self.users().filter_map(joined).collect()
    }

    /// Revokes all tokens that a user has got so far. Returns the key of the user's system, if the
    /// user has joined.
    ///
    /// # Errors
    /// There is no such user, or the revocation cannot be stored.
    pub fn revoke(&mut self, user: &str) -> Result<Option<PublicKey>, RegisterError> {
        if !self.facts.users.contains_key(user) && !self.state.users.contains_key(user) {
            return Err(self.no_user(user));
        }
        let before = self.state.clone();
        let state = self.state.users.entry(user.to_owned()).or_default();
        state.round += 1;
        // Tokens of earlier rounds are refused anyway.
        state.used.clear();
        let session = state.session.take();
        self.keep_or(before)?;
        Ok(session.map(|session| session.key))
    }

    /// Updates the properties of the access point. Ends the sessions of users who may no longer
    /// join, and returns them.
    ///
    /// # Errors
    /// The change cannot be stored.
    pub fn refresh(&mut self, facts: Facts) -> Result<Vec<(PublicKey, Refused)>, RegisterError> {
        self.facts = facts;
        let access = self.facts.access.clone();
        let users: BTreeSet<String> = self.facts.users.keys().cloned().collect();
        self.end(|name, _| {
            let what = format!("{name} is no longer a user of access point {access}");
            (!users.contains(name)).then(|| Refused::new(Refusal::NoUser, what))
        })
    }

    /// Ends sessions whose token has expired, and returns them.
    ///
    /// # Errors
    /// The change cannot be stored.
    pub fn expire(&mut self, now: u64) -> Result<Vec<(PublicKey, Refused)>, RegisterError> {
        self.end(|_, session| {
            let what = "the token has expired";
            (session.until <= now).then(|| Refused::new(Refusal::Expired, what))
        })
    }

    fn end(
        &mut self,
        why: impl Fn(&str, &Session) -> Option<Refused>,
    ) -> Result<Vec<(PublicKey, Refused)>, RegisterError> {
        let mut ended = Vec::new();
        let mut after = self.state.clone();
        for (name, state) in &mut after.users {
            let over = state
                .session
                .as_ref()
                .and_then(|session| Some((session.key, why(name, session)?)));
            if let Some(over) = over {
                state.session = None;
                ended.push(over);
            }
        }
        if !ended.is_empty() {
            let before = std::mem::replace(&mut self.state, after);
            self.keep_or(before)?;
        }
        Ok(ended)
    }

    /// The joined users, for the access point's state machine.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerConfig> {
        let users = self.state.users.iter();
        let peer = |(name, state): (&String, &UserState)| {
            Some(PeerConfig {
                key: state.session.as_ref()?.key,
                address: *self.facts.users.get(name)?,
                rate_bps: self.facts.rate_bps,
                passage: {
                    let rights = &state.session.as_ref()?.rights;
                    Passage::of(&self.given(rights), self.facts.node.address())
                },
            })
        };
        users.filter_map(peer).collect()
    }

    /// All users with their addresses, and their sessions if they have joined.
    pub fn users(&self) -> impl Iterator<Item = (&str, Ipv4Addr, Option<&Session>)> {
        self.facts.users.iter().map(|(name, address)| {
            let state = self.state.users.get(name);
            let session = state.and_then(|state| state.session.as_ref());
            (name.as_str(), *address, session)
        })
    }

    fn no_user(&self, user: &str) -> RegisterError {
        let known: Vec<&str> = self.facts.users.keys().map(String::as_str).collect();
        RegisterError::NoUser {
            access: self.facts.access.clone(),
            network: self.facts.network.clone(),
            user: user.chars().take(60).collect(),
            known: if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            },
        }
    }

    /// Stores the state, or restores `before` if that fails.
    fn keep_or(&mut self, before: State) -> Result<(), RegisterError> {
        let kept = self.keep();
        if kept.is_err() {
            self.state = before;
        }
        kept
    }

    fn keep(&self) -> Result<(), RegisterError> {
        self.state.keep(&self.path)
    }
}

/// The rights of a token that specifies none.
fn ip() -> BTreeSet<Right> {
    BTreeSet::from([Right::Ip])
}

/// The longest lease of a token, s.
const LEASE_MAX_S: u64 = 365 * 24 * 3600;
/// Largest number of routes of a user, so that the answer fits into a packet.
const ROUTES_MAX: usize = 40;

#[cfg(test)]
mod tests;
