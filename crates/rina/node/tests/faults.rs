//! Invalid input, limits, access rules, crashes and restarts.
#![allow(missing_docs, clippy::unwrap_used)]

use std::process::{Child, Command, Stdio};

use carina_api::control::{IpcpCreate, IpcpType, VmCreate};
use carina_api::ipc::Mode;
use carina_api::{DifName, ErrorCode, FlowSpec, LocalName};
use carina_node::{Config, Node, NodeError};
use carina_sys::send_with_fds;

use crate::support::*;

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn rules_deny_registration_and_allocation_by_user_and_name() {
    let uid = own_uid();
    let rules = format!(
        "[[rule]]\nuid = {uid}\nregister = \"secret.*\"\nallow = false\n\
         [[rule]]\nany = true\nallocate = \"vault\"\ndif = \"local\"\nallow = false\n"
    );
    let house = House::new("rules", &rules);
    let error = house.conn().register("secret.a", None).unwrap_err();
    assert_eq!(error.code, ErrorCode::AccessDenied);
    assert!(
        error.message.contains("secret.a") && error.message.contains("[[rule]]"),
        "{error}"
    );
    let _vault = house.register("vault");
    let caller = house.conn();
    caller.ask("vault");
    assert_eq!(caller.error().code, ErrorCode::AccessDenied);
}

#[test]
fn pending_requests_flows_and_connections_are_limited() {
    let limits =
        "[limits]\nflow_requests_per_app = 2\nconnections_per_uid = 6\nflows_per_uid = 5\n";
    let house = House::new("limits", limits);
    let server = house.register("echo");
    let callers: Vec<Conn> = (0..3).map(|_| house.conn()).collect();
    callers.iter().for_each(|caller| caller.ask("echo"));
    let error = callers[2].error();
    assert_eq!(error.code, ErrorCode::FlowDenied);
    assert!(error.message.contains("limit"), "{error}");
    let asked = [server.flow_request().request, server.flow_request().request];
    for (caller, request) in callers.iter().zip(asked) {
        server.accept(request, Mode::Ring);
        drop((server.flow(), caller.flow()));
    }
    eventually("the flows are gone", || {
        house.control().flows().unwrap().is_empty()
    });
    let kept: Vec<_> = (0..2)
        .map(|_| {
            callers[0].ask("echo");
            server.accept(server.flow_request().request, Mode::Ring);
            (server.flow(), callers[0].flow())
        })
        .collect();
    // Two flows have four ends; a fifth end is allowed, its counterpart is not.
    callers[0].ask("echo");
    assert!(callers[0].error().message.contains("limit"));
    drop(kept);
    let _more: Vec<Conn> = (0..2).map(|_| house.conn()).collect();
    assert_eq!(house.conn().error().code, ErrorCode::LimitReached);
}

#[test]
fn nonsense_on_ipc_sock_ends_the_connection() {
    let house = House::new("nonsense", "");
    for text in [
        "hello",
        "{}",
        "{\"op\":\"register\",\"version\":1}",
        "[[[[[[",
    ] {
        let conn = house.conn();
        send_with_fds(&conn.0, text.as_bytes(), &[]).unwrap();
        assert_eq!(conn.error().code, ErrorCode::BadRequest, "{text}");
        assert!(conn.hear().is_none(), "{text}");
    }
    let conn = house.conn();
    send_with_fds(&conn.0, &vec![b' '; 65_537], &[]).unwrap();
    assert!(conn.error().message.contains("65536"));
    let conn = house.conn();
    let future = br#"{"op":"register","version":2,"name":"x"}"#;
    send_with_fds(&conn.0, future, &[]).unwrap();
    assert_eq!(conn.error().code, ErrorCode::BadVersion);
    let conn = house.conn();
    conn.accept(7, Mode::Ring);
    assert_eq!(conn.error().code, ErrorCode::Conflict);
    let server = house.register("echo");
    server.accept(7, Mode::Ring);
    assert_eq!(server.error().code, ErrorCode::NotFound);
    server.ask("echo");
    assert_eq!(server.error().code, ErrorCode::Conflict);
    house.register("still-serving");
}

#[test]
fn control_sock_refuses_with_status_and_words() {
    let house = House::new("control", "");
    let control = house.control();
    let refused = |result: Result<String, carina_api::control::ClientError>, status, word: &str| {
        let text = format!("{:?}", result.unwrap_err());
        assert!(
            text.contains(&format!("status: {status}")) && text.contains(word),
            "{text}"
        );
    };
    refused(
        control.get_text("/v1/nothing"),
        404,
        "docs/reference/control-api.md",
    );
    refused(control.get_text("/v1/apply"), 405, "method");
    refused(control.get_text("/v1/vms/none"), 404, "none");
    refused(control.get_text("/v1/events?since=x"), 400, "since");
    let loopback = LocalName::new("loopback").unwrap();
    let twice = IpcpCreate::new(loopback, IpcpType::Loopback, dif("other"));
    let error = control.create_ipcp(&twice).unwrap_err().to_string();
    assert!(error.contains("duplicate-name"), "{error}");
    let error = control.destroy_ipcp("none").unwrap_err().to_string();
    assert!(error.contains("not-found"), "{error}");
}

#[test]
fn a_new_ipcp_registers_names_registered_everywhere() {
    let house = House::new("command", "node.loopback = false");
    let server = house.conn();
    assert_eq!(server.register("echo", None).unwrap(), []);
    let name = LocalName::new("second").unwrap();
    let create = IpcpCreate::new(name, IpcpType::Loopback, dif("two"));
    house.control().create_ipcp(&create).unwrap();
    let caller = house.conn();
    caller.ask_with("echo", Some("two"), FlowSpec::reliable(), Mode::Ring);
    server.accept(server.flow_request().request, Mode::Ring);
    let (mine, theirs) = (caller.flow(), server.flow());
    house.control().destroy_ipcp("second").unwrap();
    for end in [&mine, &theirs] {
        assert!(end.notice().unwrap().0.contains("destroyed"));
    }
    assert!(house.control().ipcps().unwrap().is_empty());
}

#[test]
fn apply_makes_the_node_what_the_configuration_says() {
    let house = House::new("apply", "");
    let control = house.control();
    let text = "[[ipcp]]\nname = \"lo\"\ntype = \"loopback\"\ndif = \"x\"\n\
                [[vm]]\nname = \"vm1\"\nregion_bytes = 65536\n\
                [[rule]]\nany = true\nregister = \"*\"\nallow = true\n";
    let applied = control.apply(text).unwrap();
    let names = |list: &[LocalName]| list.iter().map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&applied.created), ["lo", "vm1"]);
    assert_eq!(names(&applied.destroyed), ["loopback"]);
    assert_eq!(applied.rules, 1);
    let again = control.apply(text).unwrap();
    assert_eq!(names(&again.unchanged), ["lo", "vm1"]);
    let vm = control.vm("vm1").unwrap();
    assert_eq!((vm.dif.as_str(), vm.region_bytes), ("hv.vm1", 65536));
    assert!(vm.qemu_args[3].starts_with("ivshmem-doorbell"));
    assert!(house.dir().vm_region(&vm.name).exists());
    let error = control
        .apply("[node]\ncolour = 1\n")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("line 2") && error.contains("colour"),
        "{error}"
    );
    control.apply("").unwrap();
    assert!(control.vms().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(house.dir().vm_dir()).unwrap().count(), 0);
}

#[test]
fn vm_whose_qemu_is_gone_leaves_nothing_after_a_restart() {
    let mut house = House::new("sweep", "");
    let name = LocalName::new("vm1").unwrap();
    let create = VmCreate {
        name: name.clone(),
        region_bytes: Some(65536),
        dif: None,
        vmpi: None,
        socket: None,
        internet: Vec::new(),
        ip: Vec::new(),
        nat: false,
    };
    house.control().create_vm(&create).unwrap();
    let error = house.control().destroy_ipcp("vm1").unwrap_err().to_string();
    assert!(error.contains("destroy the VM"), "{error}");
    house.node.take().unwrap().stop();
    assert!(house.dir().vm_region(&name).exists());
    house.node = Some(start(&house.scratch, ""));
    assert_eq!(std::fs::read_dir(house.dir().vm_dir()).unwrap().count(), 0);
    assert!(house.control().vms().unwrap().is_empty());
}

#[test]
fn door_of_a_vm_is_not_shared_with_another() {
    let house = House::new("doors", "");
    let control = house.control();
    let vm = |name: &str, dif: &str, internet: &[&str]| {
        let create = VmCreate {
            name: LocalName::new(name).unwrap(),
            region_bytes: Some(65536),
            dif: Some(DifName::new(dif).unwrap()),
            vmpi: None,
            socket: None,
            internet: internet.iter().map(ToString::to_string).collect(),
            ip: Vec::new(),
            nat: false,
        };
        control
            .create_vm(&create)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    vm("a", "d", &["www.example.com:80"]).unwrap();
    let error = vm("b", "d", &[]).unwrap_err();
    assert!(error.contains("b would share DIF d with VM a"), "{error}");
    assert!(error.contains("give each a DIF of its own"), "{error}");
    vm("c", "e", &[]).unwrap();
    let error = vm("f", "e", &["*"]).unwrap_err();
    assert!(error.contains("c would share DIF e with VM f"), "{error}");
    let name = LocalName::new("u").unwrap();
    let dif = DifName::new("d").unwrap();
    let udp = IpcpCreate::new(name, IpcpType::Udp, dif);
    let error = control.create_ipcp(&udp).unwrap_err().to_string();
    assert!(error.contains("u would share DIF d with VM a"), "{error}");
    // What was refused has left nothing, and VMs without doors may share a DIF.
    vm("b", "e", &[]).unwrap();
    let mut names: Vec<_> = control
        .vms()
        .unwrap()
        .into_iter()
        .map(|vm| vm.name.to_string())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c"]);
}

#[test]
fn second_node_in_one_directory_is_refused() {
    let house = House::new("second", "");
    let mut config = Config::default();
    config.node.run_dir = Some(house.dir().path().into());
    let Err(NodeError::RunDir(refusal)) = Node::spawn(config) else {
        panic!("it started")
    };
    assert!(refusal.to_string().contains("already runs"), "{refusal}");
}

/// Not a test itself: the node that the tests below kill.
#[test]
#[ignore = "part of another test"]
fn child_node() {
    let mut config = Config::default();
    config.node.run_dir = Some(std::env::var_os("CARINA_TEST_RUN").unwrap().into());
    Node::run(config).unwrap();
}

fn start_child(scratch: &Scratch) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::child_node", "--ignored"])
        .env("CARINA_TEST_RUN", scratch.run_dir().path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let control = carina_api::control::Client::new(scratch.run_dir().control_sock());
    eventually("the child serves", || {
        control.node().is_ok_and(|node| node.pid == child.id())
    });
    child
}

#[test]
fn killed_node_hangs_up_and_a_restart_finds_a_clean_house() {
    let scratch = Scratch::new("kill");
    let mut child = start_child(&scratch);
    let server = Conn::open(&scratch.run_dir());
    server.register("echo", None).unwrap();
    let caller = Conn::open(&scratch.run_dir());
    caller.ask("echo");
    server.accept(server.flow_request().request, Mode::Ring);
    let (mine, theirs) = (caller.flow(), server.flow());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((mine.notice(), theirs.notice()), (None, None));
    assert!(server.hear().is_none());
    assert!(scratch.run_dir().ipc_sock().exists());
    let mut child = start_child(&scratch);
    Conn::open(&scratch.run_dir())
        .register("echo", None)
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn sigterm_ends_a_node_in_good_order() {
    let scratch = Scratch::new("term");
    let mut child = start_child(&scratch);
    let conn = Conn::open(&scratch.run_dir());
    conn.register("echo", None).unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(conn.hear().is_none());
    assert!(!scratch.run_dir().ipc_sock().exists());
}
