//! Tests of configurations that cannot be applied: the node refuses them, and stays as it was.

use std::net::UdpSocket;
use std::process::{Command, Output};

use serde_json::Value;

use crate::commands::node::{CARINA, Node, addresses};

/// A node with a shim over UDP, a member over it, and an application in the member's DIF.
struct Site {
    node: Node,
    text: String,
}

impl Site {
    fn new() -> Site {
        let node = Node::new();
        let [address] = addresses();
        let text = format!(
            "[[ipcp]]\nname = \"u6\"\ntype = \"udp\"\ndif = \"inet\"\nlisten = \"{address}\"\n\
             [[dif]]\nname = \"net\"\nrole = \"create\"\nover = [\"inet\"]\nipcp = \"net.a\"\n"
        );
        let site = Site { node, text };
        let output = site.apply(&site.text);
        assert!(output.status.success(), "{output:?}");
        site
    }

    fn apply(&self, text: &str) -> Output {
        let file = self.node.directory.path().join("node.toml");
        std::fs::write(&file, text).unwrap();
        self.node.run(&["apply", file.to_str().unwrap()])
    }

    /// The IPCPs by name and number. A recreated IPCP would have another number.
    fn ipcps(&self) -> Vec<(String, u64)> {
        let ipcps = self.node.done(&["ipcp", "list"]);
        let of = |ipcp: &Value| {
            (
                ipcp["name"].as_str().unwrap().to_owned(),
                ipcp["id"].as_u64().unwrap(),
            )
        };
        ipcps.as_array().unwrap().iter().map(of).collect()
    }

    fn names(&self) -> Vec<String> {
        self.ipcps().into_iter().map(|(name, _)| name).collect()
    }
}

/// Configurations whose last part cannot be applied, each with a part of the error.
const REFUSED: [(&str, &str); 8] = [
    (
        "[[dif]]\nname = \"up\"\nrole = \"create\"\nover = [\"missing\"]\n",
        "[[dif]] up: this system is in no DIF missing; it is in: inet, local, other",
    ),
    (
        "[[dif]]\nname = \"other\"\nrole = \"create\"\nover = [\"inet\"]\n",
        "other is the name of an existing shim DIF",
    ),
    (
        "[[dif]]\nname = \"up\"\nrole = \"join\"\nover = [\"inet\"]\nauth = \"password:/no/file\"\n",
        "/no/file",
    ),
    (
        "[[dif]]\nname = \"up\"\nrole = \"create\"\nover = [\"local\"]\n\
         [[rule]]\nany = true\nregister = \"up\"\nallow = false\n",
        "may not register up",
    ),
    (
        "[[ipcp]]\nname = \"e1\"\ntype = \"eth\"\ndif = \"e\"\ninterface = \"x0\"\nvlan = 0\n\
         [[ipcp]]\nname = \"e2\"\ntype = \"eth\"\ndif = \"f\"\ninterface = \"x0\"\nvlan = 0\n",
        "IPCP e2: frames without tag on x0 already belong to IPCP e1",
    ),
    ("[[dif]]\nname = \"up\"\nrole = \"creat\"\n", "line 15"),
    (
        "[node]\nname = \"another\"\n",
        "a running node keeps its name",
    ),
    (
        "[[vm]]\nname = \"v\"\nregion_bytes = 12345\n",
        "region_bytes is 12345",
    ),
];

#[test]
fn refused_configuration_disturbs_nothing_that_runs() {
    let site = Site::new();
    let before = site.ipcps();
    // Each configuration leaves out what runs, so that it would be removed.
    let other = "[[ipcp]]\nname = \"u6\"\ntype = \"loopback\"\ndif = \"other\"\n";
    let inet = "[[ipcp]]\nname = \"i\"\ntype = \"loopback\"\ndif = \"inet\"\n";
    let local = "[[ipcp]]\nname = \"l\"\ntype = \"loopback\"\ndif = \"local\"\n";
    for (wrong, words) in REFUSED {
        let text = format!("{other}{inet}{local}{wrong}");
        let output = site.apply(&text);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{wrong}: {printed}");
        assert!(printed.contains(words), "{wrong}: {printed}");
        assert_eq!(site.ipcps(), before, "{wrong}");
    }
}

#[test]
fn part_that_the_system_refuses_undoes_the_rest() {
    let site = Site::new();
    let before = site.ipcps();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    // The configuration contains nothing of what runs, and its last shim cannot listen.
    let text = format!(
        "[[ipcp]]\nname = \"lo\"\ntype = \"loopback\"\ndif = \"x\"\n\
         [[vm]]\nname = \"v\"\n\
         [[ipcp]]\nname = \"u7\"\ntype = \"udp\"\ndif = \"w\"\nlisten = \"{taken}\"\n"
    );
    let output = site.apply(&text);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{printed}");
    assert!(
        printed.contains("u7") && printed.contains("nothing was changed"),
        "{printed}"
    );
    assert_eq!(site.ipcps(), before);
    assert!(
        site.node.done(&["vm", "list"])["ports"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn what_had_to_go_first_is_there_again_after_a_failure() {
    let site = Site::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let before = site.names();
    // The name u6 must be free before the node tries the new u6.
    let text = format!(
        "[[ipcp]]\nname = \"u6\"\ntype = \"udp\"\ndif = \"inet\"\nlisten = \"{taken}\"\n\
         [[dif]]\nname = \"net\"\nrole = \"create\"\nover = [\"inet\"]\nipcp = \"net.a\"\n"
    );
    let output = site.apply(&text);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{printed}");
    assert!(
        printed.contains("u6 were recreated, which ended their flows"),
        "{printed}"
    );
    let mut after = site.names();
    let mut wanted = before;
    after.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(after, wanted);
    // The state is that of the first configuration.
    let again = site.apply(&site.text);
    let applied: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(applied["created"], serde_json::json!([]), "{applied}");
    assert_eq!(applied["destroyed"], serde_json::json!([]), "{applied}");
}

#[test]
fn member_and_rules_stay_when_an_n1_dif_cannot_be_had() {
    let site = Site::new();
    let before = site.ipcps();
    // `net` would get a second N-1 DIF, whose shim needs an interface that does not exist.
    let text = format!(
        "{}[[ipcp]]\nname = \"e\"\ntype = \"eth\"\ndif = \"wire\"\ninterface = \"no-such0\"\nvlan = 0\n\
         [[rule]]\nany = true\nallocate = \"*\"\nallow = false\n",
        site.text
            .replace("over = [\"inet\"]", "over = [\"inet\", \"wire\"]")
    );
    let output = site.apply(&text);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && printed.contains("no-such0"),
        "{printed}"
    );
    assert_eq!(site.ipcps(), before);
    let ipcps = site.node.done(&["ipcp", "list"]);
    let is_member = |ipcp: &&Value| ipcp["name"] == "net.a";
    let member = ipcps.as_array().unwrap().iter().find(is_member).unwrap();
    assert_eq!(member["member"]["over"], serde_json::json!(["inet"]));
    // The rule that forbids every flow is not in force.
    let mut ping = Command::new(CARINA);
    ping.arg("--run")
        .arg(site.node.directory.path().join("run"));
    let output = ping.args(["ping", "nobody", "-c", "1"]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
}
