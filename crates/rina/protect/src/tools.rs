//! Creates authentication and SDU protection policies by name.

mod error;

use std::sync::Arc;

use carina_ipcp::security::{Authenticator, ParamsCheck, PolicyRow, SduProtection, Toolbox};
use carina_ipcp::{Cause, PolicySpec};

use crate::auth::{AuthError, Ed25519, Nobody, Password, Stretched, XorPassword};
use crate::key::{Allowed, Identity};
use crate::random::{Random, Seeded, System};
use crate::sdu_protection::{Aead, Cipher, Lifetime, Outer, Protection};

pub use error::PolicyError;

/// Secrets of this member. They are never part of a DIF's configuration, which all members receive
/// and may show.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Password of the DIF, if the member knows one.
    pub password: Option<Secret>,
    /// Private key of this member, if it has one.
    pub identity: Option<Arc<Identity>>,
    /// Allowed keys of other members, in addition to those that the policy names.
    pub allowed: Allowed,
}

/// Secret bytes, such as a password, which logs do not show.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps secret bytes, so that logs do not show them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(bytes.into())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// Creates the authenticators and the SDU protection of one member, from its credentials.
pub struct Tools {
    credentials: Credentials,
    stretched: Option<Stretched>,
    random: Box<dyn Random>,
}

impl Tools {
    /// Makes the tools, which use the random bytes of the operating system.
    pub fn new(credentials: Credentials) -> Tools {
        Tools::with_random(credentials, Box::new(System))
    }

    /// Makes tools with pseudo-random bytes that depend only on the seed, for simulations. They
    /// provide no security.
    pub fn seeded(credentials: Credentials, seed: u64) -> Tools {
        Tools::with_random(credentials, Box::new(Seeded::new(seed)))
    }

    /// Makes tools that take random bytes from `random`.
    pub fn with_random(credentials: Credentials, random: Box<dyn Random>) -> Tools {
        Tools {
            credentials,
            stretched: None,
            random,
        }
    }

    fn password(&mut self) -> Result<Stretched, PolicyError> {
        if let Some(stretched) = &self.stretched {
            return Ok(stretched.clone());
        }
        let Some(Secret(password)) = &self.credentials.password else {
            return Err(PolicyError::NoPassword { policy: "password" });
        };
        if password.is_empty() {
            return Err(AuthError::EmptyPassword { policy: "password" }.into());
        }
        let stretched = Stretched::new(password);
        self.stretched = Some(stretched.clone());
        Ok(stretched)
    }

    fn keys(&self, spec: &PolicySpec) -> Result<(Arc<Identity>, Arc<Allowed>), PolicyError> {
        let Some(identity) = self.credentials.identity.clone() else {
            return Err(PolicyError::NoKey);
        };
        let mut allowed = self.credentials.allowed.clone();
        more_keys(spec, &mut allowed)?;
        if allowed.is_empty() {
            return Err(PolicyError::NothingAllowed);
        }
        Ok((identity, Arc::new(allowed)))
    }
}

impl Tools {
    /// Creates an authenticator, like [`Toolbox::authenticator`].
    ///
    /// # Errors
    /// A policy or parameter is unknown, or credentials are missing.
    pub fn make_authenticator(
        &mut self,
        spec: &PolicySpec,
        is_initiator: bool,
        context: &[u8],
    ) -> Result<Box<dyn Authenticator>, PolicyError> {
        check_parameters(AUTHENTICATION, spec)?;
        match name_of(spec) {
            "password" => {
                let key = self.password()?;
                let random = self.random.as_mut();
                Ok(Box::new(Password::new(
                    &key,
                    is_initiator,
                    context,
                    random,
                )?))
            }
            "xor-password" => {
                let Some(Secret(password)) = &self.credentials.password else {
                    return Err(PolicyError::NoPassword {
                        policy: "xor-password",
                    });
                };
                let random = self.random.as_mut();
                Ok(Box::new(XorPassword::new(password, is_initiator, random)?))
            }
            "ed25519" => {
                let (identity, allowed) = self.keys(spec)?;
                let random = self.random.as_mut();
                let made = Ed25519::new(identity, allowed, is_initiator, context, random)?;
                Ok(Box::new(made))
            }
            _ => Ok(Box::new(Nobody)),
        }
    }

    /// Creates SDU protection, like [`Toolbox::sdu_protection`]. `None` if the policy protects
    /// nothing.
    ///
    /// # Errors
    /// A policy or parameter is unknown, a value is invalid, or the secret is missing.
    pub fn make_sdu_protection(
        &mut self,
        spec: &PolicySpec,
        is_initiator: bool,
        secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn SduProtection>>, PolicyError> {
        let Some(settings) = Settings::of(spec)? else {
            return Ok(None);
        };
        let outer = match settings.wrap {
            Wrap::Plain => Outer::Plain,
            Wrap::Crc32 => Outer::Crc32,
            Wrap::Aead(cipher) => {
                let secret = secret.ok_or(PolicyError::NoSecret)?;
                Outer::Aead(Box::new(Aead::new(cipher, secret, is_initiator)?))
            }
        };
        let lifetime = (settings.lifetime_ms > 0).then(|| Lifetime::new(settings.lifetime_ms));
        let protection = Protection::new(outer, lifetime, settings.is_compressing);
        Ok(Some(Box::new(protection)))
    }
}

impl Toolbox for Tools {
    fn authenticator(
        &mut self,
        spec: &PolicySpec,
        is_initiator: bool,
        context: &[u8],
    ) -> Result<Box<dyn Authenticator>, Cause> {
        self.make_authenticator(spec, is_initiator, context)
            .map_err(Cause::new)
    }

    fn sdu_protection(
        &mut self,
        spec: &PolicySpec,
        is_initiator: bool,
        secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn SduProtection>>, Cause> {
        self.make_sdu_protection(spec, is_initiator, secret)
            .map_err(Cause::new)
    }

    fn list(&self) -> Vec<PolicyRow> {
        let rows = |component: Component| {
            let policies = component.policies.iter();
            policies
                .map(move |(name, help, params)| (component.name, *name, *help, params.to_vec()))
        };
        rows(AUTHENTICATION).chain(rows(PROTECTION)).collect()
    }

    fn params_check(&self) -> ParamsCheck {
        |component, spec| check_policy(component, spec).map_err(Cause::new)
    }
}

/// Checks a policy, without credentials.
fn check_policy(component: &str, spec: &PolicySpec) -> Result<(), PolicyError> {
    match component {
        "authentication" => {
            check_parameters(AUTHENTICATION, spec)?;
            more_keys(spec, &mut Allowed::default())
        }
        _ => Settings::of(spec).map(drop),
    }
}

/// Adds the keys that the policy names to `allowed`.
fn more_keys(spec: &PolicySpec, allowed: &mut Allowed) -> Result<(), PolicyError> {
    let more = spec.params.get("allowed").map_or("", String::as_str);
    for (index, line) in more.split(';').map(str::trim).enumerate() {
        if !line.is_empty() {
            let place = format!("authentication `ed25519`: allowed, key {}", index + 1);
            allowed.add(line, &place)?;
        }
    }
    Ok(())
}

/// Parameters of an `sdu-protection` policy.
struct Settings {
    wrap: Wrap,
    is_compressing: bool,
    /// Longest lifetime in milliseconds; 0 for no limit.
    lifetime_ms: u32,
}

enum Wrap {
    Plain,
    Crc32,
    Aead(Cipher),
}

impl Settings {
    /// Parses the parameters; `None` if PDUs are not protected.
    fn of(spec: &PolicySpec) -> Result<Option<Settings>, PolicyError> {
        check_parameters(PROTECTION, spec)?;
        let wrap = match name_of(spec) {
            "none" => return Ok(None),
            "aead" => Wrap::Aead(match value(PROTECTION, spec, "cipher") {
                "aes-256-gcm" => Cipher::Aes256Gcm,
                "chacha20-poly1305" => Cipher::ChaCha20Poly1305,
                other => return Err(bad_value(spec, "cipher", other)),
            }),
            "crc32" => Wrap::Crc32,
            _ => match value(PROTECTION, spec, "integrity") {
                "none" => Wrap::Plain,
                "crc32" => Wrap::Crc32,
                other => return Err(bad_value(spec, "integrity", other)),
            },
        };
        let is_compressing = match name_of(spec) {
            "lz4" => true,
            _ => match value(PROTECTION, spec, "compress") {
                "none" => false,
                "lz4" => true,
                other => return Err(bad_value(spec, "compress", other)),
            },
        };
        let lifetime = value(PROTECTION, spec, "lifetime_ms");
        let lifetime_ms = lifetime
            .parse()
            .ok()
            .filter(|ms| *ms <= LIFETIME_MAX_MS)
            .ok_or_else(|| bad_value(spec, "lifetime_ms", lifetime))?;
        Ok(Some(Settings {
            wrap,
            is_compressing,
            lifetime_ms,
        }))
    }
}

type Parameters = &'static [(&'static str, &'static str, &'static str)];

#[derive(Clone, Copy)]
struct Component {
    name: &'static str,
    /// Name, description and parameters of each policy.
    policies: &'static [(&'static str, &'static str, Parameters)],
}

fn name_of(spec: &PolicySpec) -> &str {
    match spec.name.as_str() {
        "" => "none",
        name => name,
    }
}

fn parameters_of(component: Component, spec: &PolicySpec) -> Option<Parameters> {
    let mut policies = component.policies.iter();
    let found = policies.find(|(name, ..)| *name == name_of(spec));
    found.map(|(_, _, parameters)| *parameters)
}

fn check_parameters(component: Component, spec: &PolicySpec) -> Result<(), PolicyError> {
    let policy = name_of(spec);
    let Some(known) = parameters_of(component, spec) else {
        let names: Vec<&str> = component.policies.iter().map(|(name, ..)| *name).collect();
        return Err(PolicyError::UnknownPolicy {
            component: component.name,
            policy: policy.into(),
            known: names.join(", "),
        });
    };
    let is_known = |given: &String| known.iter().any(|(name, ..)| name == given);
    match spec.params.keys().find(|given| !is_known(given)) {
        Some(given) => Err(PolicyError::UnknownParameter {
            component: component.name,
            policy: policy.into(),
            parameter: given.clone(),
        }),
        None => Ok(()),
    }
}

/// The given value of a parameter, or its default.
fn value<'a>(component: Component, spec: &'a PolicySpec, name: &str) -> &'a str {
    let known = parameters_of(component, spec).unwrap_or_default();
    let default = known
        .iter()
        .find(|row| row.0 == name)
        .map_or("", |row| row.1);
    spec.params.get(name).map_or(default, String::as_str)
}

/// The error for an invalid value, with the parameter's name and its valid values.
fn bad_value(spec: &PolicySpec, parameter: &'static str, value: &str) -> PolicyError {
    let known = parameters_of(PROTECTION, spec).unwrap_or_default();
    let right = known.iter().find(|row| row.0 == parameter);
    PolicyError::Value {
        policy: name_of(spec).into(),
        parameter,
        value: value.into(),
        meaning: right.map_or("", |row| row.2),
    }
}

/// Longest configurable lifetime: one minute. Real lifetimes of PDUs are well below it.
const LIFETIME_MAX_MS: u32 = 60_000;

const AUTHENTICATION: Component = Component {
    name: "authentication",
    policies: &[
        ("none", "Every peer that reaches a member is admitted.", &[]),
        (
            "password",
            "Both sides prove that they know the password, without sending it.",
            &[],
        ),
        (
            "xor-password",
            "IRATI's challenge: the enrollee proves that it knows the password; an eavesdropper \
             learns it.",
            &[],
        ),
        (
            "ed25519",
            "Each side proves that it has a private key which the other side's list allows.",
            &[(
                "allowed",
                "",
                "public keys that are allowed in addition to those of the member's own list: \
                 lines `ed25519 KEY NAME` separated by `;`",
            )],
        ),
    ],
};

const COMPRESS: (&str, &str, &str) = ("compress", "none", "none or lz4");
const LIFETIME: (&str, &str, &str) = (
    "lifetime_ms",
    "0",
    "most ms that a PDU may be slower in the N-1 flow than the fastest one, at most 60000; 0: \
     no limit",
);

const PROTECTION: Component = Component {
    name: "sdu-protection",
    policies: &[
        ("none", "PDUs are sent unchanged.", &[]),
        (
            "crc32",
            "A checksum detects PDUs that were damaged in transit.",
            &[COMPRESS, LIFETIME],
        ),
        (
            "lz4",
            "PDUs are compressed where that makes them shorter.",
            &[("integrity", "none", "none or crc32"), LIFETIME],
        ),
        (
            "aead",
            "PDUs are encrypted, with keys agreed at enrollment; replayed ones are discarded.",
            &[
                ("cipher", "aes-256-gcm", "aes-256-gcm or chacha20-poly1305"),
                COMPRESS,
                LIFETIME,
            ],
        ),
    ],
};

#[cfg(test)]
mod tests;
