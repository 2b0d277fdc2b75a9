//! Members of irati DIFs, wired to one another.

use carina_dialects::DIALECTS;
use carina_ipcp::security::{AuthStep, Authenticator, PolicyRow, SduProtection, Toolbox};
use carina_ipcp::{Cause, Command, Config, DifConfig, FlowKey, PolicySpec};
use carina_time::Instant;
use carina_wire::dif::Dialect;

#[path = "../../../management/tests/net/mod.rs"]
#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "each dialect needs a part of it, and adds its own to `Net`"
)]
mod dialects;

pub(crate) use dialects::*;

const BELOW: Below = Below {
    dif: "eth.DIF",
    sdu_max: 1500,
    giving_back: GivingBack::Ignored,
};

impl Net {
    pub(crate) fn new(seed: u64) -> Net {
        Net::over(BELOW, seed | 1)
    }

    /// Adds an IPCP that is not a member.
    pub(crate) fn add(&mut self, name: &str, config: DifConfig) {
        self.add_with(name, config, "secret");
    }

    /// Like [`Net::add`], with another password in its toolbox.
    pub(crate) fn add_with(&mut self, name: &str, config: DifConfig, password: &str) {
        let seed = self.random();
        let config = Config {
            name: name.into(),
            dif: "normal.DIF".into(),
            dialect: Dialect::Irati,
            dif_config: Some(config),
        };
        self.insert(config, Words::new(password), seed);
    }

    /// Adds the first member of the DIF.
    pub(crate) fn bootstrap(&mut self, name: &str, config: DifConfig) {
        self.add(name, config);
        self.order(name, Command::Bootstrap);
        assert!(self.is_member(name), "{:?}", self.events);
    }

    pub(crate) fn register(&mut self, at: &str, app: &str) {
        self.accepts.insert(app.into());
        self.order(at, Command::Register { name: app.into() });
    }

    /// The SDUs that arrived on a flow since the last call.
    pub(crate) fn read(&mut self, at: &str, flow: FlowKey) -> Vec<Vec<u8>> {
        self.take_delivered(at, flow)
    }
}

/// The configuration of every member in the tests, with a short keep-alive interval.
pub(crate) fn config() -> DifConfig {
    DifConfig {
        keepalive_ms: 5_000,
        ..DifConfig::of_dialect(Dialect::Irati)
    }
}

/// Like [`config`], with a table of addresses and no address ranges.
pub(crate) fn with_addresses(addresses: &str) -> DifConfig {
    let params = [("addresses", addresses), ("prefixes", "")];
    with_policy(config(), "address-assignment", "known-addresses", &params)
}

/// Members in a row, each enrolled through the one before it.
pub(crate) fn chain(seed: u64, names: &[&str], config: &DifConfig) -> Net {
    let mut net = Net::new(seed);
    net.bootstrap(names[0], config.clone());
    for pair in names.windows(2) {
        net.add(pair[1], config.clone());
        net.wire(pair[1], pair[0]);
        net.run(SECOND);
    }
    net.run(2 * SECOND);
    net.expect_members(names);
    net
}

/// A toolbox with the password policy of this dialect.
pub(super) struct Words {
    password: String,
}

impl Words {
    pub(crate) fn new(password: &str) -> Words {
        Words {
            password: password.into(),
        }
    }
}

struct Xor {
    password: Vec<u8>,
    challenge: Option<Vec<u8>>,
    is_initiator: bool,
}

impl Xor {
    fn mix(&self, text: &[u8]) -> Vec<u8> {
        let key = self.password.iter().cycle();
        text.iter().zip(key).map(|(a, b)| a ^ b).collect()
    }
}

impl Authenticator for Xor {
    fn step(&mut self, now: Instant, message: Option<&[u8]>) -> AuthStep {
        let done = |last| AuthStep::Done {
            last,
            secret: None,
            identity: String::new(),
        };
        match (self.is_initiator, message, &self.challenge) {
            (true, Some(text), _) => done(Some(self.mix(text))),
            (false, Some([]), None) => {
                let text = format!("{now:0>6}").into_bytes()[..6].to_vec();
                self.challenge = Some(text.clone());
                AuthStep::Send(text)
            }
            (false, Some(reply), Some(text)) if self.mix(reply) == *text => done(None),
            _ => AuthStep::Fail("the reply is not the challenge under the password".into()),
        }
    }
}

impl Toolbox for Words {
    fn authenticator(
        &mut self,
        _spec: &PolicySpec,
        is_initiator: bool,
        _context: &[u8],
    ) -> Result<Box<dyn Authenticator>, Cause> {
        Ok(Box::new(Xor {
            password: self.password.clone().into_bytes(),
            challenge: None,
            is_initiator,
        }))
    }

    fn sdu_protection(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        _secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn SduProtection>>, Cause> {
        Ok(None)
    }

    fn list(&self) -> Vec<PolicyRow> {
        vec![
            ("authentication", "none", "", vec![]),
            ("authentication", "xor-password", "", vec![]),
            ("sdu-protection", "none", "", vec![]),
        ]
    }
}
