//! Members of native DIFs, wired to one another.

use carina_ipcp::security::{AuthStep, Authenticator, PolicyRow, Reject, SduProtection, Toolbox};
use carina_ipcp::{Cause, Command, Config, Dialects, DifConfig, FlowKey, PolicySpec};
use carina_time::Instant;
use carina_wire::dif::Dialect;

#[path = "../net/mod.rs"]
#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "each dialect needs a part of it, and adds its own to `Net`"
)]
mod dialects;

pub(crate) use dialects::*;

/// The dialect of the members.
const DIALECTS: Dialects = Dialects::new(&[carina_management::DIALECT]);

const BELOW: Below = Below {
    dif: "below",
    sdu_max: 1500,
    giving_back: GivingBack::Unheard,
};

impl Net {
    pub(crate) fn new(seed: u64) -> Net {
        Net::over(BELOW, seed | 1)
    }

    /// Adds an IPCP that is not a member; `password` is the one in its toolbox.
    pub(crate) fn add(&mut self, name: &str, config: Option<DifConfig>, password: &str) {
        self.add_to("net", name, config, password);
    }

    /// Like [`Net::add`], for a DIF of another name.
    pub(crate) fn add_to(
        &mut self,
        dif: &str,
        name: &str,
        dif_config: Option<DifConfig>,
        password: &str,
    ) {
        let seed = self.random();
        let config = Config {
            name: name.into(),
            dif: dif.into(),
            dialect: Dialect::Native,
            dif_config,
        };
        let password = password.into();
        self.insert(config, Words { password }, seed);
    }

    /// Adds an IPCP with the name of another. The test refers to it as `known_as`.
    pub(crate) fn add_same_name(&mut self, known_as: &str, name: &str) {
        let seed = self.random();
        let config = Config {
            name: name.into(),
            dif: "net".into(),
            dialect: Dialect::Native,
            dif_config: None,
        };
        let password = "secret".into();
        self.insert_as(known_as, config, Words { password }, seed);
    }

    /// Adds the first member of the DIF.
    pub(crate) fn bootstrap(&mut self, name: &str, config: DifConfig) {
        self.add(name, Some(config), "secret");
        self.order(name, Command::Bootstrap);
    }

    /// Restarts a member. Its N-1 flows stay, and the other ends are not informed.
    pub(crate) fn restart(&mut self, name: &str, password: &str) {
        self.vanish(name);
        self.add(name, None, password);
        self.raise_all_of(name);
    }

    pub(crate) fn read(&mut self, at: &str, flow: FlowKey) -> Vec<u8> {
        self.take_delivered(at, flow).concat()
    }
}

/// A DIF configuration with a short keep-alive interval.
pub(crate) fn config() -> DifConfig {
    DifConfig {
        keepalive_ms: 1000,
        ..DifConfig::default()
    }
}

/// Members in a row, each enrolled through the one before it.
pub(crate) fn chain(seed: u64, names: &[&str], config: DifConfig) -> Net {
    let mut net = Net::new(seed);
    net.bootstrap(names[0], config);
    for pair in names.windows(2) {
        net.add(pair[1], None, "secret");
        net.wire(pair[1], pair[0]);
        net.run(2 * SECOND);
    }
    net.run(3 * SECOND);
    net.expect_members(names);
    net
}

/// A toolbox with a challenge that both sides answer, and SDU protection that adds one byte.
pub(super) struct Words {
    password: String,
}

struct Challenge {
    password: Vec<u8>,
    context: Vec<u8>,
    is_initiator: bool,
}

impl Challenge {
    fn proof(&self, role: u8) -> Vec<u8> {
        let mut sum: u64 = u64::from(role);
        for byte in self.password.iter().chain(&self.context) {
            sum = (sum ^ u64::from(*byte))
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(5);
        }
        sum.to_be_bytes().to_vec()
    }
}

impl Authenticator for Challenge {
    fn step(&mut self, _now: Instant, message: Option<&[u8]>) -> AuthStep {
        let done = |last| AuthStep::Done {
            last,
            secret: Some([7; 32]),
            identity: String::new(),
        };
        match (self.is_initiator, message) {
            (true, None) => AuthStep::Send(self.proof(0)),
            (true, Some(proof)) if proof == self.proof(1) => done(None),
            (false, Some(proof)) if proof == self.proof(0) => done(Some(self.proof(1))),
            _ => AuthStep::Fail("the proof is wrong".into()),
        }
    }
}

struct Stamp(u8);

impl SduProtection for Stamp {
    fn overhead(&self) -> usize {
        1
    }

    fn protect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        pdu.push(self.0);
        Ok(())
    }

    fn unprotect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        if pdu.pop() == Some(self.0) {
            Ok(())
        } else {
            Err(Reject::Forged)
        }
    }
}

impl Toolbox for Words {
    fn authenticator(
        &mut self,
        _spec: &PolicySpec,
        is_initiator: bool,
        context: &[u8],
    ) -> Result<Box<dyn Authenticator>, Cause> {
        let password = self.password.clone().into_bytes();
        Ok(Box::new(Challenge {
            password,
            context: context.to_vec(),
            is_initiator,
        }))
    }

    fn sdu_protection(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        secret: Option<&[u8; 32]>,
    ) -> Result<Option<Box<dyn SduProtection>>, Cause> {
        let secret = secret.ok_or("there is no secret")?;
        Ok(Some(Box::new(Stamp(secret[0]))))
    }

    fn list(&self) -> Vec<PolicyRow> {
        vec![
            ("authentication", "none", "", vec![]),
            ("authentication", "challenge", "", vec![]),
            ("sdu-protection", "none", "", vec![]),
            ("sdu-protection", "stamp", "", vec![]),
        ]
    }
}
