//! Commands about members of a DIF: what is in their RIBs, who may be one, who has to go.

use crate::node::{Node, both_in_one};

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
    let said = site.fails(&["rib", "list", "--where", "reliable"], 2);
    assert!(said.contains("FIELD=VALUE"), "{said}");
}

#[test]
fn a_system_that_is_a_member_already_says_so() {
    let site = both_in_one();
    for verb in ["join", "create"] {
        let said = site.fails(&["dif", verb, "net", "--over", "local"], 3);
        for word in ["already, as net.", "carina dif extend", "--ipcp"] {
            assert!(said.contains(word), "{verb}: {word}: {said}");
        }
    }
    assert_eq!(site.done(&["ipcp", "list"]).as_array().unwrap().len(), 3);
}

#[test]
fn a_member_is_told_to_leave() {
    let site = both_in_one();
    let said = site.fails(&["dif", "expel", "net", "net.c"], 1);
    assert!(said.contains("net.c"), "{said}");
    assert_eq!(
        site.done(&["dif", "expel", "net", "net.b"])["expelled"],
        "net.b"
    );
    // Half a second for its last words, and it is gone.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let ipcps = site.done(&["ipcp", "list"]);
        let mut ipcps = ipcps.as_array().unwrap().iter();
        let member = ipcps.find(|ipcp| ipcp["name"] == "net.b").unwrap();
        if member["member"]["state"] == "left" {
            break;
        }
        assert!(std::time::Instant::now() < until, "{member}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let members = site.paths(&["/members", "--depth", "1"]);
    assert_eq!(members, ["/members", "/members/net.a"]);
}
