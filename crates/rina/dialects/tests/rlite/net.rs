//! Members of rlite DIFs, wired to one another.

use carina_cdap::{Message, Rules};
use carina_dialects::DIALECTS;
use carina_ipcp::api::N1Properties;
use carina_ipcp::security::{Authenticator, PolicyRow, SduProtection, Toolbox};
use carina_ipcp::{Cause, Command, Config, DifConfig, FlowKey, PolicySpec};
use carina_wire::dif::{Dialect, Widths};

#[path = "../../../management/tests/net/mod.rs"]
#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "each dialect needs a part of it, and adds its own to `Net`"
)]
mod dialects;

pub(crate) use dialects::*;

const BELOW: Below = Below {
    dif: "below",
    sdu_max: 1452,
    giving_back: GivingBack::Heard,
};

impl Net {
    pub(crate) fn new(seed: u64) -> Net {
        Net::over(BELOW, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Adds an IPCP that is not a member.
    pub(crate) fn add(&mut self, name: &str) {
        self.add_with(name, config());
    }

    pub(crate) fn add_with(&mut self, name: &str, dif_config: DifConfig) {
        let seed = self.random();
        self.add_seeded(name, "net", dif_config, seed);
    }

    pub(crate) fn add_seeded(&mut self, name: &str, dif: &str, dif_config: DifConfig, seed: u64) {
        let config = Config {
            name: name.into(),
            dif: dif.into(),
            dialect: Dialect::Rlite,
            dif_config: Some(dif_config),
        };
        self.insert(config, Nothing, seed);
    }

    /// Adds the first member of the DIF.
    pub(crate) fn bootstrap(&mut self, name: &str) {
        self.add(name);
        self.order(name, Command::Bootstrap);
    }

    pub(crate) fn read(&mut self, at: &str, flow: FlowKey) -> Vec<u8> {
        self.take_delivered(at, flow).concat()
    }
}

/// Properties of an N-1 flow in these tests.
pub(crate) fn props(remote: &str, is_initiator: bool) -> N1Properties {
    BELOW.props(remote, is_initiator)
}

/// rlite's defaults, except that objections to addresses are waited for as in the captures.
pub(crate) fn config() -> DifConfig {
    let addresses = PolicySpec {
        name: "distributed".into(),
        params: [("nack-wait".to_string(), "1000ms".to_string())].into(),
    };
    with_policy("address-assignment", addresses)
}

pub(crate) fn with_policy(component: &str, spec: PolicySpec) -> DifConfig {
    let mut config = DifConfig::of_dialect(Dialect::Rlite);
    config.policies.insert(component.into(), spec);
    config
}

/// Members in a line; the first creates the DIF, each other one enrolls at the one before it.
pub(crate) fn line(seed: u64, names: &[&str]) -> Net {
    let mut net = Net::new(seed);
    net.bootstrap(names[0]);
    for pair in names.windows(2) {
        net.add(pair[1]);
        net.wire(pair[1], pair[0]);
        net.run(3 * SECOND);
    }
    net
}

/// A management PDU to a neighbour, with the dialect's default widths.
pub(crate) fn pdu_of(message: &Message, source: u64) -> Vec<u8> {
    pdu_in(Widths::RLITE, message, source)
}

/// Like [`pdu_of`], with other widths.
pub(crate) fn pdu_in(widths: Widths, message: &Message, source: u64) -> Vec<u8> {
    let bytes = Rules::RLITE.encode(message);
    let mut pdu = vec![0, 0x40, 0, 0, 0, 0, 64, 0];
    let mut put = |value: usize, width: u8| {
        pdu.extend_from_slice(&value.to_le_bytes()[..usize::from(width)]);
    };
    let source = usize::try_from(source).expect("an address");
    let Widths {
        seq,
        address,
        cep,
        length,
        qos,
        ..
    } = widths;
    let head = 8 + [seq, address, address, cep, cep, length, qos]
        .map(usize::from)
        .iter()
        .sum::<usize>();
    for (value, width) in [
        (0, seq),
        (0, address),
        (source, address),
        (0, cep),
        (0, cep),
    ] {
        put(value, width);
    }
    put(head + bytes.len(), length);
    put(0, qos);
    pdu.extend(bytes);
    pdu
}

/// A toolbox without policies: rlite DIFs have neither authentication nor SDU protection.
struct Nothing;

impl Toolbox for Nothing {
    fn authenticator(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        _context: &[u8],
    ) -> Result<Box<dyn Authenticator>, Cause> {
        Err("no authentication".into())
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
        Vec::new()
    }
}
