//! Tests that make, use and take down the examples of `carina lab`.

// Helper functions of tests may panic, as tests may.
#![allow(clippy::unwrap_used)]

mod dialects;
mod lab;

use lab::{Lab, examples, skipped};

#[test]
fn every_example_is_right() {
    let files = examples();
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let plan = lab::carina(&["lab", "check", "--json", &file]);
        assert!(plan.status.success(), "{file}: {}", lab::words(&plan));
        let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
        assert!(!plan["commands"].as_array().unwrap().is_empty());
        let picture = lab::carina(&["lab", "show", &file, "--svg"]);
        let picture = String::from_utf8(picture.stdout).unwrap();
        let boxes = picture.matches("font-weight=\"bold\"").count();
        assert_eq!(boxes, plan["systems"].as_array().unwrap().len(), "{file}");
    }
}

#[test]
fn a_file_that_up_would_refuse_does_not_pass() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wrong.lab");
    let net = "eth x 0Mbps a b\ndif n a x\ndif n b x\n";
    for (line, words) in [
        ("set n max_pdu=99999999", "max-pdu must be 128"),
        ("cube n p id=1\ncube n q id=1", "and unique"),
        ("set n auth=password:/no/file", "/no/file"),
        ("set n auth=ed25519:/no/key,/no/list", "/no/key"),
    ] {
        std::fs::write(&file, format!("{net}{line}\n")).unwrap();
        let at = 3 + line.lines().count();
        for verb in ["check", "up"] {
            let output = lab::carina(&["lab", verb, file.to_str().unwrap()]);
            let printed = lab::words(&output);
            assert_eq!(output.status.code(), Some(2), "{verb} {line}: {printed}");
            let place = format!("wrong.lab: line {at}, column");
            assert!(
                printed.contains(&place) && printed.contains(words),
                "{verb}: {printed}"
            );
        }
    }
}

#[test]
fn two_systems() {
    let Some(lab) = Lab::up("two-systems") else {
        return;
    };
    lab.all_enrolled();
    lab.ping("a", &["echo.b"]);
    let listed = lab.carina(&["list", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed[0]["state"], "up");
    // The output and the exit code of a command are passed on.
    let output = lab.exec("b", &["sh", "-c", "echo $CARINA_SYSTEM; exit 7"]);
    assert_eq!(output.stdout, b"b\n");
    assert_eq!(output.status.code(), Some(7));
    let unknown = lab.exec("c", &["true"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(lab::words(&unknown).contains("it has: a, b"));
    let again = lab.up_again("two-systems");
    assert!(
        lab::words(&again).contains("carina lab down"),
        "{}",
        lab::words(&again)
    );
    lab.ping("a", &["echo.b"]);
}

#[test]
fn what_a_killed_up_has_left_is_taken_down() {
    let Some(mut lab) = Lab::start("two-systems") else {
        return;
    };
    lab.kill_maker_once_there_is_a_node();
    lab.down_and_look();
    // `down` succeeds again when nothing is left.
    lab.down_and_look();
}

#[test]
fn sigterm_while_machines_boot_leaves_nothing() {
    if skipped("qemu-system-x86_64") {
        return;
    }
    let Some(mut lab) = Lab::start("vm-to-vm") else {
        return;
    };
    lab.terminate_maker_once_there_is_a_machine();
    lab.look();
}

#[test]
fn what_fails_leaves_nothing_and_says_why() {
    let text = "system a b\neth ab 0Mbps a b\ndif n a ab\ndif n b ab\n\
                app b wait=never.registered: echo not today\n";
    let Some((lab, output)) = Lab::fail(text) else {
        return;
    };
    let printed = lab::words(&output);
    assert!(
        printed.contains("`echo not today` ended") && printed.contains("not today"),
        "{printed}"
    );
    lab.look();
}

#[test]
fn one_command_in_a_lab_of_its_own() {
    let Some(lab) = Lab::up_text("system only") else {
        return;
    };
    let file = examples()
        .into_iter()
        .find(|file| file.ends_with("two-systems.lab"))
        .unwrap();
    let ping = [
        "carina",
        "ping",
        "echo.b",
        "--count",
        "2",
        "--interval",
        "10ms",
        "--timeout",
        "60s",
        "--wait",
        "600s",
    ];
    let run = ["run", "--wait", "600s", &file, "a"];
    let output = lab.carina(&[&run, &ping[..]].concat());
    let printed = lab::words(&output);
    assert!(
        output.status.success() && printed.contains("2 answered"),
        "{printed}"
    );
    let output = lab.carina(&[&run, &["sh", "-c", "exit 9"][..]].concat());
    assert_eq!(output.status.code(), Some(9));
    let listed = lab.carina(&["list", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn figure_16_11_thirteen_systems() {
    let Some(lab) = Lab::up("paper-routing") else {
        return;
    };
    lab.all_enrolled();
    for system in ["L", "I", "A"] {
        lab.ping(system, &["rina.apps.echotime"]);
    }
}

#[test]
fn figure_16_13_goodput_over_dif_upon_dif() {
    let Some(lab) = Lab::up("paper-performance") else {
        return;
    };
    lab.all_enrolled();
    for dif in ["one", "two"] {
        lab.ping("a", &["rina.apps.echotime", "--dif", dif]);
    }
    // A shim over Ethernet promises no reliability.
    let bare = [
        "rina.apps.echotime",
        "--dif",
        "bare",
        "--spec",
        "unreliable",
    ];
    lab.ping("a", &bare);
}

#[test]
fn figure_16_15_three_systems_one_of_which_moves() {
    let Some(lab) = Lab::up("paper-mobility") else {
        return;
    };
    lab.all_enrolled();
    lab.ping("mobile", &["rina.apps.echotime"]);
}

#[test]
fn dif_upon_dif_across_a_provider() {
    let Some(lab) = Lab::up("recursive") else {
        return;
    };
    lab.all_enrolled();
    lab.ping("a", &["rina.apps.echotime"]);
}

#[test]
fn a_file_of_rlites_demonstrator() {
    let Some(lab) = Lab::up("rlite-style") else {
        return;
    };
    lab.all_enrolled();
}

#[test]
fn a_file_of_rlites_demonstrator_with_udp() {
    let Some(lab) = Lab::up("rlite-udp") else {
        return;
    };
    lab.all_enrolled();
    lab.ping("a", &["echo.c"]);
}

#[test]
fn a_link_of_udp_has_three_systems_and_two_difs_on_it() {
    let text = "udp4 lan a:10.1.0.1/24 b:10.1.0.2/24 c:10.1.0.3/24\n\
                dif n a lan\ndif n b lan\ndif n c lan\ndif m c lan\ndif m a lan\n\
                app b wait=echo.b: carina ping --listen echo.b --dif n\n\
                app c wait=echo.c: carina ping --listen echo.c --dif m\n";
    let Some(lab) = Lab::up_text(text) else {
        return;
    };
    lab.all_enrolled();
    for system in ["a", "c"] {
        lab.ping(system, &["echo.b"]);
    }
    lab.ping("a", &["echo.c", "--dif", "m"]);
}

#[test]
fn a_link_of_four_is_a_bridge() {
    let text = "eth lan 0Mbps a b c d vlan=7\ndif n a lan\ndif n b lan\ndif n c lan\ndif n d lan\n\
                app d wait=echo.d: carina ping --listen echo.d\n";
    let Some(lab) = Lab::up_text(text) else {
        return;
    };
    lab.all_enrolled();
    for system in ["a", "b", "c"] {
        lab.ping(system, &["echo.d"]);
    }
}

#[test]
fn figure_4b_two_vms_on_a_host() {
    if skipped("qemu-system-x86_64") {
        return;
    }
    let Some(lab) = Lab::up("vm-to-vm") else {
        return;
    };
    lab.all_enrolled();
    lab.ping("vm1", &["rina.apps.echotime"]);
}

#[test]
fn figure_4c_two_vms_on_two_hosts() {
    if skipped("qemu-system-x86_64") {
        return;
    }
    let Some(lab) = Lab::up("two-hosts") else {
        return;
    };
    lab.all_enrolled();
    lab.ping("vm1", &["rina.apps.echotime"]);
}
