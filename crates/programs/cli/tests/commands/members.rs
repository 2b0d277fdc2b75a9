//! Tests of commands about members of a DIF: their RIBs, admission, expulsion.

use std::time::{Duration, Instant};

use crate::commands::node::{Node, PATIENCE, both_in_one, one_in_each};

impl Node {
    fn paths(&self, words: &[&str]) -> Vec<String> {
        let objects = self.done(&[&["rib", "list"], words].concat());
        let objects = objects.as_array().unwrap().iter();
        objects
            .map(|object| object["path"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn objects_are_chosen_by_depth_and_by_conditions() {
    let site = both_in_one();
    let top = site.paths(&["/", "--depth", "1"]);
    assert!(top.contains(&"/members".to_owned()), "{top:?}");
    assert!(
        top.iter().all(|path| path.matches('/').count() == 1),
        "{top:?}"
    );
    let of_b = ["--member", "net.b"];
    for whose in [&[][..], &of_b] {
        let words = ["--where", "class=qos_cube", "--where", "name=reliable"];
        assert_eq!(site.paths(&[&words, whose].concat()), ["/dif/cubes/3"]);
    }
    assert!(site.paths(&["--where", "class=nothing"]).is_empty());
    let printed = site.fails(&["rib", "list", "--where", "reliable"], 2);
    assert!(printed.contains("FIELD=VALUE"), "{printed}");
}

#[test]
fn a_system_that_is_a_member_already_says_so() {
    let site = both_in_one();
    for verb in ["join", "create"] {
        let printed = site.fails(&["dif", verb, "net", "--over", "local"], 3);
        for word in ["already, as net.", "carina dif extend", "--ipcp"] {
            assert!(printed.contains(word), "{verb}: {word}: {printed}");
        }
    }
    assert_eq!(site.done(&["ipcp", "list"]).as_array().unwrap().len(), 3);
}

#[test]
fn an_expelled_member_leaves() {
    let site = both_in_one();
    let printed = site.fails(&["dif", "expel", "net", "net.c"], 1);
    assert!(printed.contains("net.c"), "{printed}");
    assert_eq!(
        site.done(&["dif", "expel", "net", "net.b"])["expelled"],
        "net.b"
    );
    // The member has half a second to send its last messages, and is then removed.
    let until = Instant::now() + PATIENCE;
    loop {
        let ipcps = site.done(&["ipcp", "list"]);
        let mut ipcps = ipcps.as_array().unwrap().iter();
        let member = ipcps.find(|ipcp| ipcp["name"] == "net.b").unwrap();
        if member["member"]["state"] == "left" {
            break;
        }
        assert!(Instant::now() < until, "{member}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let members = site.paths(&["/members", "--depth", "1"]);
    assert_eq!(members, ["/members", "/members/net.a"]);
}

#[test]
fn any_member_shows_what_it_stands_on() {
    let [a, b] = one_in_each();
    // No application answers in `local`, so one wanted N-1 flow there does not come up.
    let mut extend = std::process::Command::new(crate::commands::node::CARINA);
    extend.arg("--run").arg(b.directory.path().join("run"));
    extend.args(["dif", "extend", "net", "--over", "local", "--via", "nobody"]);
    assert!(extend.output().unwrap().status.success());
    let until = Instant::now() + PATIENCE;
    let over = loop {
        let over = a.done(&["dif", "show", "net", "--member", "net.b"])["over"].clone();
        if over[1]["n1"]["reason"].is_string() {
            break over;
        }
        assert!(Instant::now() < until, "{over}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(over.as_array().unwrap().len(), 2, "{over}");
    for (at, dif, remote, state) in [(0, "inet", "net.a", "up"), (1, "local", "nobody", "wanted")] {
        let row = &over[at];
        assert_eq!(
            (&row["dif"], &row["member"]),
            (&dif.into(), &"net.b".into())
        );
        let n1 = &row["n1"];
        assert_eq!(
            (&n1["remote"], &n1["state"]),
            (&remote.into(), &state.into())
        );
    }
    assert_eq!(over[0]["n1"]["neighbour"], "net.a");
    // Its own node reports the same, except for what only that node knows.
    let own = b.done(&["dif", "show", "net"])["over"].clone();
    for (own, other) in own.as_array().unwrap().iter().zip(over.as_array().unwrap()) {
        for field in ["dif", "remote", "neighbour", "state"] {
            assert_eq!(own["n1"][field], other["n1"][field], "{field}");
        }
    }
}

#[test]
fn where_there_are_several_members_one_is_named_to_leave() {
    let site = both_in_one();
    let leave = ["dif", "leave", "net"];
    let printed = site.fails(&leave, 3);
    for word in ["several members", "net.a, net.b", "ipcp"] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    let printed = site.fails(&[&leave[..], &["--ipcp", "net.c"]].concat(), 1);
    assert!(printed.contains("net.c is no member"), "{printed}");
    site.done(&[&leave[..], &["--ipcp", "net.b"]].concat());
    let ipcps = site.done(&["ipcp", "list"]);
    let names = ipcps.as_array().unwrap().iter();
    let names: Vec<_> = names.map(|ipcp| ipcp["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["loopback", "net.a"]);
    site.done(&leave);
    site.fails(&leave, 1);
}

#[test]
fn when_a_neighbour_was_heard_is_for_programs_and_for_people() {
    let site = both_in_one();
    let all = site.done(&["rib", "list", "/neighbours", "--where", "class=neighbour"]);
    let all = all.as_array().unwrap();
    let other = all
        .iter()
        .find(|object| object["path"] == "/neighbours/net.b")
        .unwrap();
    for field in ["heard_at_ms", "heard_ago_ms"] {
        assert!(other["fields"][field].is_u64(), "{other}");
    }
    let map = site.done(&["dif", "map", "net"]);
    assert!(map["heard_ago_ms"]["16"].is_u64(), "{map}");
    for words in [["dif", "map", "net"], ["dif", "show", "net"]] {
        let mut command = std::process::Command::new(crate::commands::node::CARINA);
        command.arg("--run").arg(site.directory.path().join("run"));
        let output = command.args(words).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            printed.contains(" ago") && !printed.contains("HEARD_AT"),
            "{printed}"
        );
    }
}

#[test]
fn a_second_first_member_is_refused_and_told_how_to_join() {
    let site = both_in_one();
    let make = ["dif", "create", "net", "--over", "local", "--ipcp", "net.c"];
    let printed = site.fails(&make, 3);
    assert!(
        printed.contains("carina dif join net --via net."),
        "{printed}"
    );
}

#[test]
fn slips_are_answered_with_what_is_right() {
    let site = both_in_one();
    let printed = site.fails(&["rib", "read", "members"], 2);
    assert!(printed.contains("/members"), "{printed}");
    let file = site.directory.path().join("passwd");
    std::fs::write(&file, "root:x:0:0:root:/root:/bin/bash\n").unwrap();
    let printed = site.fails(&["import", "rlite-ctl", file.to_str().unwrap()], 1);
    assert!(
        printed.contains("has nothing that can be carried over"),
        "{printed}"
    );
    let printed = site.fails(&["dissect", file.to_str().unwrap()], 1);
    assert!(
        printed.contains("neither a pcap nor a pcapng file"),
        "{printed}"
    );
    std::fs::write(&file, "").unwrap();
    let printed = site.fails(&["dissect", file.to_str().unwrap()], 1);
    assert!(printed.contains("is empty"), "{printed}");
}
