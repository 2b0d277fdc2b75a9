//! IPC processes that use the policies of this crate.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use carina_ipcp::api::N1Properties;
use carina_ipcp::config::{QosCube, WindowConfig};
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner, TransferEvent};
use carina_ipcp::security::{AuthStep, Authenticator, PolicyRow, SduProtection, Toolbox};
use carina_ipcp::{
    Catalogue, Cause, Command, Config, DataPath, Dialects, DifConfig, Event, FlowKey, Ipcp, N1Port,
    PolicySpec,
};
use carina_time::Instant;
use carina_wire::Bytes;
use carina_wire::dif::{Address, Dialect, PduType, Syntax};

#[path = "../examples/longest_queue.rs"]
mod longest_queue;

#[test]
fn the_example_runs() {
    longest_queue::main();
}

/// A toolbox without authentication and SDU protection.
struct Trusting;

struct Agreed;

impl Authenticator for Agreed {
    fn step(&mut self, _now: Instant, _message: Option<&[u8]>) -> AuthStep {
        AuthStep::Done {
            last: None,
            secret: None,
            identity: String::new(),
        }
    }
}

impl Toolbox for Trusting {
    fn authenticator(
        &mut self,
        _spec: &PolicySpec,
        _is_initiator: bool,
        _context: &[u8],
    ) -> Result<Box<dyn Authenticator>, Cause> {
        Ok(Box::new(Agreed))
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
            ("sdu-protection", "none", "", vec![]),
        ]
    }
}

fn cube(id: u16, is_reliable: bool) -> QosCube {
    QosCube {
        id,
        name: format!("cube {id}"),
        in_order: is_reliable,
        retransmission: is_reliable,
        window: is_reliable.then(WindowConfig::default),
        rate: None,
        max_sdu_gap: None,
        partial_delivery: false,
        priority: 1,
        weight: 1,
        ecn: false,
        initial_a_ms: 20,
        retransmit_ms: 30_000,
        max_delay_us: 0,
        max_loss: 10_000,
    }
}

fn named(name: &str, param: &str, value: &str) -> PolicySpec {
    PolicySpec {
        name: name.into(),
        params: [(param.into(), value.into())].into(),
    }
}

fn config() -> DifConfig {
    let scheduling = named("longest-queue", "oldest-every", "4");
    let congestion = named("constant", "window", "5");
    DifConfig {
        max_pdu: 1500,
        concatenation: false,
        cubes: vec![cube(1, false), cube(2, false), cube(3, true)],
        policies: [
            ("rmt-scheduling".into(), scheduling),
            ("congestion-control".into(), congestion),
        ]
        .into(),
        ..DifConfig::default()
    }
}

fn catalogue() -> Catalogue {
    let mut catalogue = Catalogue::standard();
    carina_policy_example::register(&mut catalogue);
    catalogue
}

/// A member with flows 1, 2 and 3 to a neighbour, which use QoS cubes 1, 2 and 3.
fn member() -> DataPath<Bytes> {
    let mut member = DataPath::new(catalogue(), 1);
    member.configure(Instant::ZERO, &config()).unwrap();
    member.set_address(Address(1));
    let props = N1Properties {
        dif: "medium".into(),
        remote: "peer".into(),
        sdu_max: 1500,
        is_reliable: false,
        is_exposed: false,
        is_initiator: true,
        cost: 1,
    };
    member.add_n1(N1Port(0), &props);
    member.set_neighbour(Instant::ZERO, Address(2), &[N1Port(0)]);
    for cube in config().cubes {
        let open = Open {
            owner: Owner::Flow(FlowKey(u32::from(cube.id))),
            cube,
            msg_boundaries: true,
            pinned: None,
        };
        let cep = member.open(Instant::ZERO, open).unwrap();
        member.connect(Instant::ZERO, cep, Address(2), cep);
    }
    member
}

fn sent(member: &mut DataPath<Bytes>) -> Vec<u16> {
    member.end_of_burst(Instant::from_nanos(1));
    let mut order = Vec::new();
    while let Some(n1) = member.poll_n1() {
        let pdu = member.take_transmit(Instant::from_nanos(1), n1).unwrap();
        let route = Syntax::default().peek(pdu.as_slice()).unwrap();
        assert_eq!(route.kind, PduType::Data);
        order.push(route.qos.0);
    }
    order
}

#[test]
fn the_rmt_serves_the_longest_queue() {
    let mut member = member();
    for (flow, len) in [(1, 100), (1, 100), (1, 100), (2, 1000), (2, 1000)] {
        member.on_sdu(
            Instant::from_nanos(1),
            FlowKey(flow),
            Bytes::from(vec![0; len]),
            false,
        );
    }
    // Twice cube 2, which has more bytes. Then the remaining PDUs; the fourth choice serves the
    // oldest.
    assert_eq!(sent(&mut member), [2, 2, 1, 1, 1]);
}

#[test]
fn congestion_control_lets_five_pdus_out() {
    let mut member = member();
    for _ in 0..20 {
        member.on_sdu(
            Instant::from_nanos(1),
            FlowKey(3),
            Bytes::from(vec![0; 500]),
            false,
        );
    }
    assert_eq!(sent(&mut member), [3; 5]);
    let wider = named("constant", "window", "9");
    member
        .set_policy(Instant::from_nanos(2), "congestion-control", &wider)
        .unwrap();
    let error = member
        .set_policy(
            Instant::from_nanos(2),
            "congestion-control",
            &named("constant", "windows", "9"),
        )
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "congestion-control: policy constant has no parameter \"windows\"; it has: window"
    );
    assert!(!matches!(
        DataTransfer::poll(&mut member),
        Some(TransferEvent::Failed { .. })
    ));
}

#[test]
fn a_dif_begins_with_the_policies() {
    let config = Config {
        name: "a.example".into(),
        dif: "example.DIF".into(),
        dialect: Dialect::Native,
        dif_config: Some(config()),
    };
    let dialects = Dialects::new(&[carina_management::DIALECT]);
    let mut ipcp: Ipcp<Bytes> =
        Ipcp::new(dialects, config.clone(), Box::new(Trusting), catalogue(), 5).unwrap();
    ipcp.handle(Instant::from_nanos(1), Command::Bootstrap);
    let event = ipcp.poll_event();
    let Some(Event::Enrolled { config: force, .. }) = event else {
        panic!("{event:?}");
    };
    assert_eq!(force.policies["rmt-scheduling"].name, "longest-queue");

    let without: Result<Ipcp<Bytes>, _> = Ipcp::new(
        dialects,
        config,
        Box::new(Trusting),
        Catalogue::standard(),
        5,
    );
    let error = without.err().unwrap().to_string();
    assert!(error.contains("no policy is called"), "{error}");
}
