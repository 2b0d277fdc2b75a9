//! Tests of valid and invalid configurations.

use super::*;

fn refusal(text: &str) -> String {
    Config::parse(text, Some(Path::new("node.toml")))
        .unwrap_err()
        .to_string()
}

#[test]
fn empty_configuration_is_the_default() {
    let config = Config::parse("", None).unwrap();
    assert_eq!(config, Config::default());
    assert!(config.wants_implicit_loopback());
}

#[test]
fn workers_are_counted_and_placed() {
    let text = "node.workers = 2\nnode.cpus = [3, 5]\nnode.placement = { e0 = 1 }\n";
    let config = Config::parse(text, None).unwrap();
    let workers = config.node.data_plane();
    assert_eq!((workers.count, &workers.cpus[..]), (2, &[3, 5][..]));
    assert_eq!(config.node.placement().values().next(), Some(&1));
    for (text, line, words) in [
        ("\nnode.workers = 0", 2, "must be 1 to 64"),
        ("node.workers = 65", 1, "workers is 65"),
        (
            "node.workers = 2\nnode.cpus = [1]",
            2,
            "1 processors for 2 workers",
        ),
        (
            "[node]\nworkers = 2\nplacement = { e0 = 0, e1 = 2 }",
            3,
            "e1 is placed on worker 2",
        ),
    ] {
        let refusal = refusal(text);
        let line = format!("line {line}");
        assert!(
            refusal.contains(&line) && refusal.contains(words),
            "{text}: {refusal}"
        );
    }
}

#[test]
fn full_configuration_is_read() {
    let config = Config::parse(
        r#"
        [node]
        name = "host"
        run_dir = "/run/x"
        dif_order = ["hv.vm1", "local"]
        [limits]
        flows_per_uid = 5
        [[ipcp]]
        name = "lo"
        type = "loopback"
        dif = "local"
        [[ipcp]]
        name = "up"
        type = "hv"
        dif = "hv.vm1"
        side = "guest"
        [[vm]]
        name = "vm1"
        region_bytes = 65536
        [[rule]]
        any = true
        register = "*"
        allow = true
        "#,
        None,
    )
    .unwrap();
    assert_eq!(
        (config.ipcps.len(), config.vms.len(), config.rules.len()),
        (2, 1, 1)
    );
    assert!(!config.wants_implicit_loopback());
    assert_eq!(
        (config.limits.flows_per_uid, config.limits.answer_ms),
        (5, 10_000)
    );
}

#[test]
fn unknown_key_shows_file_line_and_key() {
    let text = refusal("[node]\nname = \"a\"\ncolour = \"red\"\n");
    assert!(text.contains("node.toml"), "{text}");
    assert!(text.contains("line 3"), "{text}");
    assert!(text.contains("colour"), "{text}");
    let text = refusal("\n[[vm]]\nname = \"a\"\nregion = 5\n");
    assert!(text.contains("line 4") && text.contains("region"), "{text}");
}

#[test]
fn bad_values_show_their_line() {
    for (text, line, word) in [
        ("[[vm]]\nname = \"a/b\"\n", 2, "'/'"),
        (
            "\n\n[[vm]]\nname = \"a\"\nregion_bytes = 65537\n",
            3,
            "power of two",
        ),
        (
            "[[vm]]\nname = \"a\"\n[[vm]]\nname = \"a\"\n",
            3,
            "used twice",
        ),
        (
            "[[ipcp]]\nname = \"a\"\ntype = \"hv\"\ndif = \"d\"\n",
            1,
            "[[vm]]",
        ),
        (
            "[[ipcp]]\nname = \"a\"\ntype = \"wifi\"\ndif = \"d\"\n",
            3,
            "wifi",
        ),
        ("[[rule]]\nuid = 1\nallow = true\n", 1, "register"),
        ("[limits]\nanswer_ms = -1\n", 2, "-1"),
        ("[limits]\nring_bytes = 5000\n", 2, "power of two"),
        (
            "[[expose]]\nname = \"a\"\nto = \"tcp:localhost\"\n",
            3,
            "tcp:HOST:PORT",
        ),
        (
            "[[expose]]\nname = \"a\"\nto = \"unix:/s\"\n[[expose]]\nname = \"a\"\nto = \"unix:/t\"\n",
            4,
            "exposed twice",
        ),
        (
            "[[expose]]\nname = \"a\"\nto = \"udp:h:1\"\nproxy_protocol = true\n",
            1,
            "proxy_protocol",
        ),
        (
            "[[connect]]\nname = \"a\"\nlisten = \"unix:/s\"\nconnections_max = 0\n",
            1,
            "1 or more",
        ),
        (
            "[[connect]]\nname = \"a\"\nlisten = \"unix:/s\"\n[[connect]]\nname = \"b\"\nlisten = \"unix:/s\"\n",
            4,
            "two listeners have the address",
        ),
        ("node = 5 5", 1, ""),
    ] {
        let shown = refusal(text);
        assert!(shown.contains(&format!("line {line}")), "{text:?}: {shown}");
        assert!(shown.contains(word), "{text:?}: {shown}");
    }
}

#[test]
fn bad_interfaces_show_their_line() {
    for (text, line, word) in [
        (
            "[[ip]]\ndif = \"n\"\naddress = [\"10.9.1.1\"]\n",
            3,
            "10.9.1.1/24",
        ),
        (
            "[[ip]]\ndif = \"n\"\naddress = [\"10.9.1.1/24\"]\nmtu = 9\n",
            1,
            "[[ip]] carina0: mtu is 9; 576 to 65535",
        ),
        (
            "[[ip]]\ndif = \"n\"\naddress = [\"10.9.1.1/24\"]\n[[ip]]\ndif = \"n\"\ntun = \"b\"\naddress = [\"10.9.1.1/16\"]\n",
            4,
            "ip:10.9.1.1/32 is registered in DIF n by carina0 too",
        ),
        (
            "[[ip]]\ndif = \"n\"\naddress = [\"10.9.1.1/24\"]\n[[ip]]\ndif = \"m\"\naddress = [\"10.8.1.1/16\"]\n",
            4,
            "two interfaces have the name carina0",
        ),
    ] {
        let shown = refusal(text);
        assert!(shown.contains(&format!("line {line}")), "{text:?}: {shown}");
        assert!(shown.contains(word), "{text:?}: {shown}");
    }
}

#[test]
fn oversized_text_is_refused_unread() {
    assert!(refusal(&" ".repeat(TEXT_BYTES_MAX + 1)).contains("at most"));
}
