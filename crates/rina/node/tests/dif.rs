//! Normal DIFs within one system: members over the loopback shim and over each other.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::control::{ClientError, DifCreate, DifRole, MemberState};
use carina_api::ipc::Mode;
use carina_api::{AppName, ErrorCode, FlowSpec};

use crate::support::members::{enrolled, ipcp, refused_for_good, request, routed};
use crate::support::pair::Pair;
use crate::support::*;

/// Creates a DIF with two members in one system.
fn pair(house: &House, name: &str, over: &str) -> [String; 2] {
    let names = [1, 2].map(|n| format!("{name}.m{n}"));
    let control = house.control();
    let first = request(name, DifRole::Create, over, &names[0]);
    control.create_dif(&first).unwrap();
    enrolled(house, &names[0]);
    let mut second = request(name, DifRole::Join, over, &names[1]);
    second.via = Some(AppName::new(names[0].as_str()).unwrap());
    control.create_dif(&second).unwrap();
    enrolled(house, &names[1]);
    names
}

/// Waits until the DIF's directory contains the name.
fn known(house: &House, in_dif: &str, name: &str) {
    eventually(&format!("{name} is known in {in_dif}"), || {
        let difs = house.control().difs().unwrap();
        let found = difs.iter().find(|found| found.name == dif(in_dif));
        found.is_some_and(|found| found.names.contains(&app(name)))
    });
}

#[test]
fn two_members_over_loopback_carry_a_flow() {
    let house = House::new("dif-pair", "");
    let names = pair(&house, "net", "local");
    let other = AppName::new(names[1].as_str()).unwrap();
    eventually("they are neighbours", || {
        ipcp(&house, &names[0]).member.unwrap().neighbours == [other.clone()]
    });
    let server = house.conn();
    server.register("echo", Some("net")).unwrap();
    known(&house, "net", "echo");
    let caller = house.conn();
    caller.ask_with("echo", Some("net"), FlowSpec::reliable(), Mode::Ring);
    let asked = server.flow_request();
    assert_eq!(asked.dif, dif("net"));
    server.accept(asked.request, Mode::Ring);
    let (mut theirs, mut mine) = (server.flow(), caller.flow());
    for n in 0..200u8 {
        mine.send(&[n; 100]);
        assert_eq!(theirs.recv().unwrap(), [n; 100]);
        theirs.send(&[n; 1]);
        assert_eq!(mine.recv().unwrap(), [n; 1]);
    }
    mine.send(b"last words");
    mine.close();
    assert_eq!(theirs.recv().unwrap(), b"last words");
    assert_eq!(theirs.recv(), None);
}

/// Adds a DIF over `over`, with a member on each side.
fn layer(pair: &Pair, name: &str, over: &str) {
    let host = request(name, DifRole::Create, over, &format!("{name}.host"));
    pair.host.control().create_dif(&host).unwrap();
    enrolled(&pair.host, &format!("{name}.host"));
    let guest = request(name, DifRole::Join, over, &format!("{name}.guest"));
    pair.guest.control().create_dif(&guest).unwrap();
    enrolled(&pair.guest, &format!("{name}.guest"));
}

/// A flow from the guest to the host in one DIF; the first end returned is the host's.
fn flow_in(pair: &Pair, in_dif: &str, name: &str, spec: FlowSpec) -> (Conn, Taken, Taken) {
    let server = pair.host.conn();
    server.register(name, Some(in_dif)).unwrap();
    known(&pair.guest, in_dif, name);
    routed(&pair.guest, in_dif, &format!("{in_dif}.host"));
    let caller = pair.guest.conn();
    caller.ask_with(name, Some(in_dif), spec, Mode::Ring);
    let asked = server.flow_request();
    server.accept(asked.request, Mode::Ring);
    let theirs = server.flow();
    (server, theirs, caller.flow())
}

#[test]
fn eight_difs_upon_each_other_carry_a_file_unharmed() {
    let pair = Pair::new("stack", "");
    let file = content(4 << 20, 0);
    let mut below = "hv.x".to_owned();
    for depth in 1..=8 {
        let name = format!("d{depth}");
        layer(&pair, &name, &below);
        let app = format!("sink{depth}");
        let (_server, theirs, mine) = flow_in(&pair, &name, &app, FlowSpec::reliable());
        carry(&file, mine, theirs, depth);
        below = name;
    }
}

fn carry(file: &[u8], mut mine: Taken, mut theirs: Taken, depth: u32) {
    std::thread::scope(|scope| {
        let sent = file.to_vec();
        scope.spawn(move || {
            for sdu in sent.chunks(1400) {
                mine.send_patiently(sdu);
            }
            mine.close();
        });
        let mut got = Vec::with_capacity(file.len());
        while let Some(sdu) = theirs.recv_whole() {
            got.extend_from_slice(&sdu);
        }
        assert_eq!(got.len(), file.len(), "depth {depth}");
        assert!(got == file, "depth {depth}");
    });
}

#[test]
fn small_sdus_under_flow_control_never_stop() {
    let house = House::new("dif-small", "");
    pair(&house, "net", "local");
    let server = house.conn();
    server.register("sink", Some("net")).unwrap();
    known(&house, "net", "sink");
    let caller = house.conn();
    let spec = FlowSpec {
        in_order: true,
        ..FlowSpec::unreliable()
    };
    // These sizes divide the room of a reader with an empty ring, so SDUs fill exactly the room
    // that was announced. SDUs without bytes need room for their records only.
    for (bytes, count) in [(1, 150_000u32), (2_750, 2_000), (0, 150_000)] {
        caller.ask_with("sink", Some("net"), spec, Mode::Ring);
        let asked = server.flow_request();
        server.accept(asked.request, Mode::Ring);
        let (mut theirs, mut mine) = (server.flow(), caller.flow());
        let writer = std::thread::spawn(move || {
            for n in 0..count {
                mine.send_patiently(&vec![n as u8; bytes]);
            }
            mine
        });
        for n in 0..count {
            assert_eq!(theirs.recv().unwrap(), vec![n as u8; bytes], "SDU {n}");
        }
        writer.join().unwrap().close();
    }
}

#[test]
fn a_joiner_without_the_password_is_refused_for_good() {
    let pair = Pair::new("password", "");
    let file = |name: &str, text: &str| {
        let path = pair.host.scratch.0.join(name);
        std::fs::write(&path, text).unwrap();
        Some(format!("password:{}", path.display()))
    };
    let mut first = request("safe", DifRole::Create, "hv.x", "safe.host");
    first.auth = file("right", "open sesame\n");
    first.config = Some(serde_json::json!({
        "policies": { "sdu-protection": { "name": "aead" } }
    }));
    pair.host.control().create_dif(&first).unwrap();
    enrolled(&pair.host, "safe.host");
    let mut second = request("safe", DifRole::Join, "hv.x", "safe.guest");
    let control = pair.guest.control();
    for auth in [file("wrong", "open barley"), None, Some("none".to_owned())] {
        second.auth.clone_from(&auth);
        control.create_dif(&second).unwrap();
        eventually("it is refused", || {
            let info = ipcp(&pair.guest, "safe.guest").member.unwrap();
            assert_ne!(info.state, MemberState::Enrolled, "{auth:?}");
            info.last_error.is_some_and(|why| why.contains("enroll"))
        });
        refused_for_good(&pair.guest, "safe.guest", "enroll");
        control.leave_dif("safe", None).unwrap();
    }
    second.auth = file("right2", "open sesame");
    control.create_dif(&second).unwrap();
    enrolled(&pair.guest, "safe.guest");
    let (_server, mut theirs, mut mine) = flow_in(&pair, "safe", "vault", FlowSpec::reliable());
    mine.send(b"gold");
    assert_eq!(theirs.recv().unwrap(), b"gold");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario or table, step by step")]
fn a_joining_member_needs_keys_allowed_on_both_sides() {
    let pair = Pair::doubly_joined("keys", 1_400);
    let path = |name: &str| pair.host.scratch.0.join(name);
    // In the lists of other members, a key has the name of the IPCP that owns it.
    let [host, guest, stranger] = [
        ("host", "net.host"),
        ("guest", "net.guest"),
        ("stranger", "net.guest"),
    ]
    .map(|(file, name)| carina_node::key::generate(&path(file), name).unwrap());
    let auth = |own: &str, allowed: &[&String]| {
        let list = path(&format!("{own}.{}", allowed.len()));
        let lines: Vec<&str> = allowed.iter().map(|line| line.as_str()).collect();
        std::fs::write(&list, lines.join("\n")).unwrap();
        Some(format!(
            "ed25519:{},{}",
            path(own).display(),
            list.display()
        ))
    };
    let mut first = request("net", DifRole::Create, "wire", "net.host");
    first.auth = auth("host", &[&guest]);
    first.config = Some(serde_json::json!({
        "policies": { "sdu-protection": {
            "name": "aead", "params": { "cipher": "chacha20-poly1305", "compress": "lz4" },
        } }
    }));
    pair.host.control().create_dif(&first).unwrap();
    enrolled(&pair.host, "net.host");
    let mut second = request("net", DifRole::Join, "wire", "net.guest");
    let control = pair.guest.control();
    let misnamed = host.replace("net.host", "somebody");
    // A key that no member allows; a member that the joiner does not trust, or knows under another
    // name.
    for (wrong, words) in [
        (auth("stranger", &[&host]), "check the credentials"),
        (
            auth("guest", &[&stranger, &guest]),
            "not on the list of allowed",
        ),
        (
            auth("guest", &[&misnamed, &guest, &stranger]),
            "under the name of its IPCP",
        ),
    ] {
        second.auth = wrong;
        control.create_dif(&second).unwrap();
        refused_for_good(&pair.guest, "net.guest", words);
        control.leave_dif("net", None).unwrap();
    }
    // The event names the owner of the key once, at the member that refused.
    let events = pair
        .host
        .control()
        .events(0, std::time::Duration::ZERO)
        .unwrap();
    let mut told = events
        .events
        .iter()
        .filter(|event| event.detail.contains("not on the list of allowed"));
    let words = told
        .next()
        .map(|event| event.detail.clone())
        .unwrap_or_default();
    let key = stranger.split(' ').nth(1).unwrap();
    assert!(
        words.contains(key),
        "{words:?} names {key}; {:?}",
        events.events
    );
    assert!(told.next().is_none(), "{:?}", events.events);
    second.auth = auth("guest", &[&host]);
    control.create_dif(&second).unwrap();
    enrolled(&pair.guest, "net.guest");
    let (_server, mut theirs, mut mine) = flow_in(&pair, "net", "vault", FlowSpec::reliable());
    for n in 0..100_u8 {
        mine.send(&[n; 900]);
        assert_eq!(theirs.recv().unwrap(), [n; 900]);
    }
    let objects = control
        .rib(Some("net"), None, "/data-transfer/n1/0", 0)
        .unwrap();
    assert_eq!(
        objects[0].fields["protected"], true,
        "others can listen there"
    );
}

#[test]
fn configured_members_rejoin_after_a_restart() {
    let net = |role: &str, rest: &str| {
        format!("[[dif]]\nname = \"net\"\nrole = \"{role}\"\nover = [\"hv.x\"]\n{rest}")
    };
    let mut pair = Pair::new("restart", "");
    let config = net("create", "ipcp = \"first\"\n[dif.config]\nhop_limit = 7\n");
    // Applying the configuration would remove what is not in it, such as the shim attached by the
    // test.
    let apply = |house: &House, text: &str| house.control().apply(text);
    let refused = apply(&pair.host, &config.replace("hop_limit", "hop_limt")).unwrap_err();
    assert!(
        refused.to_string().contains("line 7") && refused.to_string().contains("hop_limt"),
        "{refused}"
    );
    let mut first = request("net", DifRole::Create, "hv.x", "first");
    first.config = Some(serde_json::json!({ "hop_limit": 7 }));
    pair.host.control().create_dif(&first).unwrap();
    enrolled(&pair.host, "first");
    let second = request("net", DifRole::Join, "hv.x", "second");
    pair.guest.control().create_dif(&second).unwrap();
    enrolled(&pair.guest, "second");
    let dif_of = |house: &House| {
        let objects = house.control().rib(Some("net"), None, "/dif", 0).unwrap();
        objects[0].fields["hop_limit"].clone()
    };
    assert_eq!(dif_of(&pair.guest), 7);
    // The guest's node stops and starts again, and finds the host's member.
    pair.guest.node.take().unwrap().stop();
    eventually("the neighbour is gone", || {
        ipcp(&pair.host, "first")
            .member
            .unwrap()
            .neighbours
            .is_empty()
    });
    pair.guest.node = Some(start(&pair.guest.scratch, "node.name = \"guest\"\n"));
    pair.attach(&pair.guest, carina_vmpi::hl::Side::Guest);
    pair.guest.control().create_dif(&second).unwrap();
    enrolled(&pair.guest, "second");
    let (_server, mut theirs, mut mine) = flow_in_net(&pair);
    mine.send(b"again");
    assert_eq!(theirs.recv().unwrap(), b"again");
}

fn flow_in_net(pair: &Pair) -> (Conn, Taken, Taken) {
    let server = pair.host.conn();
    server.register("phoenix", Some("net")).unwrap();
    known(&pair.guest, "net", "phoenix");
    routed(&pair.guest, "net", "first");
    let caller = pair.guest.conn();
    caller.ask_with("phoenix", Some("net"), FlowSpec::reliable(), Mode::Ring);
    server.accept(server.flow_request().request, Mode::Ring);
    let theirs = server.flow();
    (server, theirs, caller.flow())
}

#[test]
fn a_member_that_leaves_is_known_no_more() {
    let pair = Pair::new("leaving", "");
    layer(&pair, "net", "hv.x");
    let server = pair.guest.conn();
    server.register("short.lived", Some("net")).unwrap();
    known(&pair.host, "net", "short.lived");
    let objects = |path: &str| pair.host.control().rib(Some("net"), None, path, 1).unwrap();
    let paths = |path: &str| -> Vec<String> {
        let objects = objects(path).into_iter();
        objects.map(|object| object.path).collect()
    };
    let before = paths("/members");
    pair.guest.control().leave_dif("net", None).unwrap();
    // A member that was only lost would be known by name for a minute, and as member for ten.
    eventually("it is forgotten with its names", || {
        let is_named = |path: &String| path.contains("short.lived");
        paths("/members").len() == before.len() - 1 && !paths("/directory").iter().any(is_named)
    });
}

#[test]
fn an_expelled_member_leaves_and_is_not_admitted_again() {
    let pair = Pair::new("expel", "");
    layer(&pair, "net", "hv.x");
    let (_server, theirs, mine) = flow_in(&pair, "net", "sink", FlowSpec::reliable());
    let control = pair.host.control();
    // The order arrives as a message, and as an entry that all members have.
    let says_so = |reason: &str| {
        reason.contains("net.host expelled this member")
            || reason.contains("this member was expelled")
    };
    let refusal = |member: &str, code: ErrorCode, word: &str| match control.expel("net", member) {
        Err(ClientError::Refused { body, .. }) => {
            assert_eq!(body.code, code, "{body}");
            assert!(body.message.contains(word), "{body}");
        }
        other => panic!("{other:?}"),
    };
    refusal("nobody", ErrorCode::Conflict, "\"nobody\" is known here");
    refusal("net.host", ErrorCode::BadRequest, "carina dif leave net");
    control.expel("net", "net.guest").unwrap();
    eventually("it has left", || {
        let info = ipcp(&pair.guest, "net.guest").member.unwrap();
        info.state == MemberState::Left && info.step.contains("net.host expelled this member")
    });
    for end in [theirs, mine] {
        assert!(end.notice().is_some_and(|(reason, _)| says_so(&reason)));
    }
    eventually("the host knows of it no more", || {
        let rib = control.rib(Some("net"), None, "/members", 1).unwrap();
        rib.iter().all(|object| object.path != "/members/net.guest")
    });
    pair.guest.control().leave_dif("net", None).unwrap();
    let again = request("net", DifRole::Join, "hv.x", "net.guest");
    pair.guest.control().create_dif(&again).unwrap();
    refused_for_good(&pair.guest, "net.guest", "was expelled");
}

#[test]
fn configured_members_join_once_another_member_exists() {
    let house = House::new(
        "config-dif",
        "[[dif]]\nname = \"net\"\nrole = \"create\"\nover = [\"local\"]\nipcp = \"one\"\n\
         [[dif]]\nname = \"net\"\nrole = \"join\"\nover = [\"local\"]\nipcp = \"two\"\n\
         [[dif]]\nname = \"top\"\nrole = \"create\"\nover = [\"net\"]\n",
    );
    enrolled(&house, "one");
    enrolled(&house, "two");
    let node = house.control().node().unwrap().name;
    enrolled(&house, &format!("top.{node}"));
    let same = house
        .control()
        .apply("[[dif]]\nname = \"net\"\nrole = \"create\"\nover = [\"local\"]\nipcp = \"one\"\n");
    let applied = same.unwrap();
    assert_eq!(applied.unchanged.len(), 2, "{applied:?}");
    assert_eq!(applied.destroyed.len(), 2, "{applied:?}");
    house.control().leave_dif("net", None).unwrap();
    assert!(house.control().leave_dif("net", None).is_err());
    eventually("no flow is left", || {
        house.control().flows().unwrap().is_empty()
    });
}

#[test]
fn impossible_members_are_refused_with_a_reason() {
    let house = House::new("refused", "");
    let refusal = |create: &DifCreate| house.control().create_dif(create).unwrap_err().to_string();
    let base = request("net", DifRole::Create, "local", "a");
    let with = |change: &dyn Fn(&mut DifCreate)| {
        let mut create = base.clone();
        change(&mut create);
        refusal(&create)
    };
    assert!(with(&|c| c.over = vec![dif("atlantis")]).contains("atlantis"));
    assert!(with(&|c| c.over.clear()).contains("over"));
    assert!(with(&|c| c.over = vec![dif("net")]).contains("own N-1"));
    assert!(with(&|c| c.name = dif("local")).contains("local"));
    assert!(with(&|c| c.auth = Some("magic:x".into())).contains("magic"));
    assert!(with(&|c| c.auth = Some("password:/nowhere/x".into())).contains("/nowhere/x"));
    assert!(with(&|c| c.config = Some(serde_json::json!({"colour": 1}))).contains("colour"));
    let policy = serde_json::json!({"policies": {"routing": {"name": "carrier-pigeon"}}});
    assert!(with(&|c| c.config = Some(policy.clone())).contains("carrier-pigeon"));
    house.control().create_dif(&base).unwrap();
    assert!(refusal(&base).contains("named a"));
    assert!(with(&|c| c.via = Some(app("b"))).contains("via"));
}
