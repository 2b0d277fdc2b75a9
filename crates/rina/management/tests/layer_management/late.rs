//! Late messages, and ends that overlap with beginnings: a message about an earlier flow or
//! registration does not affect a later one, and a flow follows a member whose address changes.

use carina_ipcp::{Command, FlowKey};
use carina_wire::FlowSpec;

use crate::layer_management::net::{MS, Net, SECOND, chain, config, with_policy};

fn register(net: &mut Net, at: &str, app: &str) {
    net.order(at, Command::Register { name: app.into() });
}

fn ask(net: &mut Net, at: &str, app: &str) -> FlowKey {
    net.allocate(at, "client", app, FlowSpec::reliable())
}

#[test]
fn a_late_lookup_answer_is_not_for_a_later_flow() {
    // For some names c is a home itself, and sends no query.
    for at in 0..6 {
        let server = format!("server{at}");
        let on_demand = with_policy(config(), "directory", "on-demand", &[]);
        let mut net = chain(61, &["a", "b", "c"], on_demand);
        net.accepts.insert(server.clone());
        register(&mut net, "a", &server);
        net.run(3 * SECOND);
        net.wires[1].loss = 100;
        let first = ask(&mut net, "c", "nobody");
        net.deallocate("c", first);
        // Repeats until the key is reused.
        let again = loop {
            let key = ask(&mut net, "c", &server);
            if key == first {
                break key;
            }
            net.deallocate("c", key);
        };
        net.wires[1].loss = 0;
        net.run(8 * SECOND);
        assert_eq!(net.allocated("c", again), Some(Ok(())), "{server}");
    }
}

/// Two halves of a DIF, in which `c` and `d` have the same address. When the halves join, `d` takes
/// another address.
fn halves(seed: u64) -> Net {
    let config = with_policy(config(), "address-assignment", "sequential", &[]);
    let mut net = chain(seed, &["a", "b"], config);
    net.wires[0].is_cut = true;
    net.run(10 * SECOND);
    for (new, old) in [("c", "a"), ("d", "b")] {
        net.add(new, None, "secret");
        net.wire(new, old);
    }
    net.run(5 * SECOND);
    assert_eq!(net.address("c"), net.address("d"));
    net
}

#[test]
fn a_flow_follows_a_member_readdressed_during_the_decision() {
    for (caller, called) in [("b", "d"), ("d", "b")] {
        let mut net = halves(62);
        register(&mut net, called, "server");
        net.run(SECOND);
        let mine = ask(&mut net, caller, "server");
        net.run(SECOND);
        let (flow, answer) = (net.offered(called), Ok(()));
        let before = net.address("d");
        net.wires[0].is_cut = false;
        net.run(60 * SECOND);
        assert_ne!(net.address("d"), before);
        net.order(called, Command::Respond { flow, answer });
        net.run(10 * SECOND);
        assert_eq!(net.allocated(caller, mine), Some(Ok(())), "{caller}");
        net.write(caller, mine, b"there");
        net.write(called, flow, b"and back");
        net.run(5 * SECOND);
        assert_eq!(net.read(called, flow), b"there", "{caller}");
        assert_eq!(net.read(caller, mine), b"and back", "{caller}");
    }
}

#[test]
fn a_late_copy_does_not_renew_a_connection_again() {
    let mut config = config();
    (config.widths.seq, config.concatenation) = (2, false);
    let mut net = chain(63, &["a", "b"], config);
    net.accepts.insert("server".into());
    register(&mut net, "a", "server");
    net.run(SECOND);
    let mine = ask(&mut net, "b", "server");
    net.run(SECOND);
    let theirs = net.offered("a");
    // Lets the connection run until its next renewal. Returns what b has sent.
    let renew = |net: &mut Net| {
        let before = net.count("b", "connections-renewed");
        net.take_sent(0, 0);
        for n in 0..2_000_u32 {
            for _ in 0..BURST {
                net.write("b", mine, &n.to_be_bytes());
            }
            net.run(10 * MS);
            assert_eq!(net.read("a", theirs), n.to_be_bytes().repeat(BURST));
            if net.count("b", "connections-renewed") > before {
                net.run(SECOND);
                return net.take_sent(0, 0);
            }
        }
        panic!("sequence numbers do not run out");
    };
    let first = renew(&mut net);
    renew(&mut net);
    for pdu in first {
        net.inject(0, 1, pdu);
    }
    net.run(SECOND);
    net.write("a", theirs, b"to whom");
    net.run(5 * SECOND);
    assert_eq!(net.read("b", mine), b"to whom");
}

#[test]
fn a_late_copy_of_a_request_does_not_open_the_flow_again() {
    // The flow is ended by the called member, or by the caller.
    for ends in ["a", "c"] {
        let mut net = chain(64, &["a", "b", "c"], config());
        net.accepts.insert("server".into());
        register(&mut net, "a", "server");
        net.run(SECOND);
        net.take_sent(0, 0);
        let mine = ask(&mut net, "c", "server");
        net.run(SECOND);
        let asked = net.take_sent(0, 0);
        let flow = if ends == "c" { mine } else { net.offered("a") };
        net.deallocate(ends, flow);
        net.run(5 * SECOND);
        for pdu in asked {
            net.inject(0, 1, pdu);
        }
        net.run(SECOND);
        assert_eq!(net.incoming["a"].len(), 1, "{ends} ended it");
        assert_eq!(net.count("a", "stale"), 1, "{ends} ended it");
    }
}

#[test]
fn a_registration_outlives_late_words_about_an_earlier_one() {
    for at in 0..6 {
        let server = format!("server{at}");
        let on_demand = with_policy(config(), "directory", "on-demand", &[]);
        let mut net = chain(65, &["a", "b", "c"], on_demand);
        net.accepts.insert(server.clone());
        net.run(SECOND);
        net.take_sent(0, 1);
        register(&mut net, "a", &server);
        let name = server.clone();
        net.order("a", Command::Unregister { name });
        net.run(SECOND);
        let earlier = net.take_sent(0, 1);
        register(&mut net, "a", &server);
        net.run(SECOND);
        for pdu in earlier {
            net.inject(0, 0, pdu);
        }
        net.run(SECOND);
        let flow = ask(&mut net, "c", &server);
        net.run(2 * SECOND);
        assert_eq!(net.allocated("c", flow), Some(Ok(())), "{server}");
    }
}

/// Number of SDUs that are written at a time.
const BURST: usize = 64;
