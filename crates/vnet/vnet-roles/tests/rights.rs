//! Tests what callers may not do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use carina_vnet::host_part::VnetId;
use carina_vnet::message::{FromAgent, PartKey, ToPip, ToVnp};
use carina_vnet_roles::calling::connection::{CallError, Callee, Request};
use carina_vnet_roles::identity::{Identity, Role};
use carina_vnet_roles::keys::{KeyDir, Tls};
use serde_json::json;

use crate::played::{LIMIT, Providers, at, document};

fn party(role: Role, name: &str) -> Identity {
    Identity::new(role, name).unwrap()
}

/// Connects with the certificate of `tls`, and sends one request.
fn call(
    tls: &Tls,
    (role, name, port): (Role, &str, u16),
    (method, target, body): (&str, &str, &str),
) -> Result<String, CallError> {
    let callee = Callee {
        party: party(role, name),
        address: at(port),
        tls: tls.clone(),
    };
    let mut connection = callee.connect()?;
    let request = Request {
        method,
        target,
        body,
        wait: Duration::ZERO,
    };
    let answer = callee.request(&mut connection, &request)?;
    Ok(String::from_utf8(answer).unwrap())
}

fn say<T: serde::Serialize>(message: &T) -> String {
    serde_json::to_string(&[message]).unwrap()
}

/// Whether the connection was closed before anything was answered.
fn is_sent_away(answer: &Result<String, CallError>) -> bool {
    println!("{answer:?}");
    let error = answer.as_ref().err();
    error.is_some_and(|error| {
        matches!(
            error,
            CallError::Broken { .. } | CallError::Unreached { .. }
        )
    })
}

/// The text of a refusal.
fn refusal(answer: Result<String, CallError>) -> String {
    match answer {
        Err(CallError::Refused(body)) => body.to_string(),
        other => panic!("not a refusal: {other:?}"),
    }
}

#[test]
fn certificates_that_are_old_or_of_others_open_nothing() {
    let providers = Providers::new();
    let _pips = providers.start(&[Role::Pip]);
    let uk = (Role::Pip, "uk", providers.ports.uk);
    let hear = ("GET", "/v1/messages?wait_ms=0", "");
    let good = providers.tls(Role::Vnp, "net");
    assert_eq!(call(&good, uk, hear).unwrap(), "[]");
    // An expired certificate.
    let old = KeyDir::new(providers.directory.path().join("old"));
    let vnp = party(Role::Vnp, "net");
    providers.keys().issue(&vnp, -1, &old).unwrap();
    let tls = Tls::of(&old, &vnp).unwrap();
    assert!(is_sent_away(&call(&tls, uk, hear)));
    // A certificate of another authority, whose holder trusts ours.
    let other = KeyDir::new(providers.directory.path().join("other"));
    other.create_authority().unwrap();
    other.issue(&vnp, 2, &other).unwrap();
    let ca = |of: &KeyDir| of.path().join("ca.pem");
    std::fs::copy(ca(&providers.keys()), ca(&other)).unwrap();
    let tls = Tls::of(&other, &vnp).unwrap();
    assert!(is_sent_away(&call(&tls, uk, hear)));
    // Another provider cannot answer in place of the provider that was called.
    let de = (Role::Pip, "uk", providers.ports.de);
    let error = call(&good, de, hear).unwrap_err();
    assert!(matches!(error, CallError::Unreached { .. }), "{error}");
}

#[test]
fn callers_without_tls_or_certificate_are_sent_away() {
    let providers = Providers::new();
    let _pips = providers.start(&[Role::Pip]);
    let mut plain = TcpStream::connect(("127.0.0.1", providers.ports.uk)).unwrap();
    plain.set_read_timeout(Some(LIMIT)).unwrap();
    let request = "GET /v1/messages HTTP/1.1\r\nHost: uk\r\n\r\n";
    plain.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // The connection is closed or reset.
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"));
}

#[test]
fn each_role_has_its_own_rights_and_no_others() {
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let uk = (Role::Pip, "uk", providers.ports.uk);
    let net = (Role::Vnp, "net", providers.ports.net);
    let acme = (Role::Vno, "acme", providers.ports.acme);
    let hear = ("GET", "/v1/messages?wait_ms=0", "");
    let operator = providers.tls(Role::Operator, "acme");
    let words = refusal(call(&operator, uk, hear));
    assert!(words.contains("of role vnp or agent"), "{words}");
    let words = refusal(call(&operator, net, hear));
    assert!(words.contains("of role vno"), "{words}");
    // An operator of another VNO cannot give orders to this one.
    let keys = providers.keys();
    keys.issue(&party(Role::Operator, "other"), 2, &keys)
        .unwrap();
    for tls in [
        providers.tls(Role::Operator, "other"),
        providers.tls(Role::Vnp, "net"),
    ] {
        for request in [
            ("GET", "/v1/vnets", ""),
            ("GET", "/v1/vnets/x/events", ""),
            ("POST", "/v1/vnets", "{}"),
            ("DELETE", "/v1/vnets/x", ""),
        ] {
            let words = refusal(call(&tls, acme, request));
            assert!(words.contains("operator acme may"), "{request:?}: {words}");
        }
    }
    // An agent reports only for its own host.
    let agent = providers.tls(Role::Agent, "secret-a");
    let report = |host: &str| {
        say(&FromAgent {
            host: host.to_owned(),
            ..FromAgent::default()
        })
    };
    let post = |body: &str| call(&agent, uk, ("POST", "/v1/messages", body));
    assert_eq!(post(&report("secret-a")).unwrap(), "null");
    let words = refusal(post(&report("secret-b")));
    assert!(words.contains("may not speak for secret-b"), "{words}");
    // It cannot report to another provider either.
    let de = (Role::Pip, "de", providers.ports.de);
    let own = report("secret-a");
    let words = refusal(call(&agent, de, ("POST", "/v1/messages", &own)));
    assert!(words.contains("not in the inventory"), "{words}");
    let words = refusal(post(&say(&ToPip::Advertise)));
    assert!(words.contains("must be a JSON list of messages"), "{words}");
    let words = refusal(post("[[[["));
    assert!(words.contains("must be a JSON list of messages"), "{words}");
    let long = "x".repeat(13 << 20);
    match post(&long) {
        // The server may close the connection before the complete request was sent.
        Err(CallError::Broken { .. }) => {}
        other => assert!(refusal(other).contains("at most")),
    }
}

#[test]
fn networks_of_others_are_out_of_reach() {
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp]);
    let _agents = [0, 1].map(|number| providers.agent(number));
    let keys = providers.keys();
    keys.issue(&party(Role::Vno, "other"), 2, &keys).unwrap();
    let net = (Role::Vnp, "net", providers.ports.net);
    let vnet = VnetId::new(7);
    let want = |generation| {
        let document = Box::new(document("mine"));
        say(&ToVnp::Want {
            vnet,
            generation,
            document,
        })
    };
    let acme = providers.tls(Role::Vno, "acme");
    let other = providers.tls(Role::Vno, "other");
    let post = |tls: &Tls, to, body: &str| call(tls, to, ("POST", "/v1/messages", body));
    post(&acme, net, &want(1)).unwrap();
    let words = refusal(post(&other, net, &want(2)));
    assert!(words.contains("belongs to another party"), "{words}");
    let words = refusal(post(&other, net, &say(&ToVnp::Remove { vnet })));
    assert!(words.contains("belongs to another party"), "{words}");
    let hear = ("GET", "/v1/messages?wait_ms=0", "");
    assert_eq!(call(&other, net, hear).unwrap(), "[]");
    // The same between VNPs: a VNP cannot release what another one has reserved at a PIP.
    let uk = (Role::Pip, "uk", providers.ports.uk);
    let key = PartKey {
        vnet: VnetId::new(8),
        round: 1,
    };
    let part = json!({
        "name": "mine",
        "nodes": [{
            "node": {
                "name": "a", "kind": "namespace", "image": "carina", "cpus": 1,
                "memory_mib": 64, "boot": "clone"
            },
            "location": [], "nics": 0, "labels": {}, "apart_from": [], "host": null
        }],
        "links": []
    });
    let reserve = json!([{ "reserve": { "key": key, "part": part } }]).to_string();
    let [mine, theirs] = ["one", "two"].map(|name| {
        keys.issue(&party(Role::Vnp, name), 2, &keys).unwrap();
        providers.tls(Role::Vnp, name)
    });
    let begin = Instant::now();
    loop {
        // Until its agent has reported, the host does not count as present.
        post(&mine, uk, &reserve).unwrap();
        let heard = call(&mine, uk, ("GET", "/v1/messages?wait_ms=500", "")).unwrap();
        if heard.contains("offered") {
            break;
        }
        assert!(begin.elapsed() < LIMIT, "{heard}");
    }
    for message in [ToPip::Release { key }, ToPip::Cancel { key }] {
        let words = refusal(post(&theirs, uk, &say(&message)));
        assert!(words.contains("belongs to another party"), "{words}");
    }
}
