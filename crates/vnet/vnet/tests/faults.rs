//! Tests that invalid documents get errors with place and remedy.

use carina_vnet::document::{Document, Form, limits};

const HEAD: &str = "[vnet]\nname = \"demo\"\n[node.r1]\n[node.r2]\n";

fn refusal(text: &str, form: Form) -> String {
    match Document::read(text, form) {
        Ok(document) => panic!("accepted: {document:?}\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// The text after [`HEAD`], and words of the error.
const WRONG: &[(&str, &[&str])] = &[
    ("[node.r3]\ncpu = 2\n", &["line 6", "cpu", "cpus"]),
    (
        "[[link]]\nends = [\"r1\", \"r9\"]\nrate = \"1bps\"\n",
        &["line 5, link 1", "`r9`", "r1"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r1\"]\nrate = \"1bps\"\n",
        &["line 5", "two different"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"fast\"\n",
        &["line 7", "100Mbps"],
    ),
    ("[[link]]\nends = [\"r1\"]\nrate = \"1bps\"\n", &["line 6"]),
    (
        "[node.s]\nkind = \"bridge\"\n[[link]]\nends = [\"r1\", \"s\"]\nrate = \"1bps\"\n",
        &["line 7, link 1", "ipip", "as = \"gre\""],
    ),
    (
        "[node.s]\nkind = \"bridge\"\nboot = \"clone\"\nnics = { count = 1 }\n\
         [access.home]\nnode = \"s\"\n",
        &["node s", "nothing to clone", "no cards", "no access points"],
    ),
    (
        "[node.s]\nkind = \"bridge\"\n\
         [[link]]\nends = [\"r1\", \"s:br0\"]\nrate = \"1bps\"\nas = \"gre\"\n\
         addresses = [\"10.9.0.1/24\", \"10.9.0.2/24\"]\n\
         [[link]]\nends = [\"r2\", \"s\"]\nrate = \"1bps\"\nas = \"gre\"\n\
         addresses = [\"10.9.0.1/24\", \"10.9.0.3/24\"]\n",
        &[
            "`br0`",
            "`r1` has the address 10.9.0.1/24",
            "bridge `s` gets 10.9.0.3/24",
        ],
    ),
    (
        "[node.s]\nkind = \"bridge\"\n\
         [[link]]\nends = [\"r1\", \"s\"]\nrate = \"1bps\"\nas = \"gre\"\n\
         addresses = [\"10.9.0.1/24\", \"10.9.0.2/24\"]\n\
         [[link]]\nends = [\"r2\", \"s\"]\nrate = \"1bps\"\nas = \"gre\"\n",
        &["link 2", "another prefix"],
    ),
    (
        "[node.n]\nkind = \"namespace\"\nfiles = [{ path = \"/x\", content = \"\" }]\n",
        &["node n", "filesystem = \"host\""],
    ),
    (
        "[node.n]\nfiles = [{ path = \"/x\", source = \"../../etc/shadow\" }]\n",
        &["node n", "`../../etc/shadow`", "beside the document"],
    ),
    (
        "[node.n]\nexec = [\"true\"]\nimage = \"debian\"\n",
        &["node n", "\"debian\"", "carina"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\naddresses = [\"10.9.0.1/24\", \"10.9.1.1/24\"]\n",
        &[
            "line 5, link 1",
            "10.9.0.1/24 and 10.9.1.1/24",
            "of one prefix",
        ],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\naddresses = [\"10.9.0.1/24\", \"10.9.0.255/24\"]\n",
        &["link 1", "10.9.0.255/24 is no address", "unicast"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\naddresses = [\"10.9.0.1/24\"]\n",
        &["line 8"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\naddresses6 = [\"2001:db8::1/64\", \"2001:db8::2/64\"]\n",
        &["link 1", "addresses6 needs another carrier", "gre"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\nas = \"gre\"\naddresses6 = [\"fe80::1/64\", \"fe80::2/64\"]\n",
        &["link 1", "fe80::1/64 is no address"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\naddresses = [\"10.9.0.1/24\", \"10.9.0.2/24\"]\n\
         [[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\naddresses = [\"10.9.0.5/30\", \"10.9.0.6/30\"]\n",
        &["line 9, link 2", "overlaps that of link 1"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\naddresses = [\"10.0.0.1/24\", \"10.0.0.2/24\"]\n\
         [[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\n",
        &["line 5, link 1", "10.0.0.0/17", "links without addresses"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\nmtu = 9001\n",
        &["link 1", "mtu is 9001", "from 68 to 9000"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\nmtu = 1500\nas = \"dif\"\n",
        &["link 1", "mtu is 1500", "68 to 1400"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\njitter = \"2ms\"\n",
        &["line 5, link 1", "jitter is 2ms", "at most the delay"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\ndelay = [\"0s\", \"11s\"]\n",
        &["line 5, link 1", "delay is 11s", "at most 10s"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\ndelay = \"2ms\"\ndelay_max = \"1ms\"\n",
        &["link 1", "delay is 2ms", "at most 1ms"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\nloss = \"2%\"\nloss_max = \"1%\"\n",
        &["link 1", "loss is 2%", "loss_max, which is 1%"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\nloss = \"100%\"\n",
        &["link 1", "loss is 100%", "link down"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\nreorder = \"1%\"\n",
        &["link 1", "reorder is 1%", "no delay"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\ndelay = [\"1ms\"]\n",
        &["line 8", "list of two"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1bps\"\ndelay = [\"1ms\", \"1ms\", \"1ms\"]\n",
        &["line 8", "3 items"],
    ),
    (
        "[[link]]\nends = [\"r1:a/b\", \"r2\"]\nrate = \"1bps\"\n",
        &["a/b", "interface"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2\", \"r2\"]\nrate = \"1bps\"\n",
        &["line 6", "a list of 3 items where 2 belong"],
    ),
    (
        "[[test]]\nping = [\"r1\", \"r2\", \"r1\", \"r2\"]\n",
        &["line 6", "a list of 4 items where 2 belong"],
    ),
    (
        "[[link]]\nends = [\"r1:lo\", \"r2\"]\nrate = \"1bps\"\n",
        &["line 5, link 1", "`lo`", "kernel", "eth0"],
    ),
    (
        "[[link]]\nends = [\"r1\", \"r2:default\"]\nrate = \"1bps\"\n",
        &["line 5, link 1", "`default`", "eth0"],
    ),
    (
        "[node.r3]\napart_from = [\"r3\"]\n",
        &["line 5, node r3", "itself"],
    ),
    (
        "[node.r3]\napart_from = [\"r4\"]\n[node.r4]\napart_from = [\"r3\"]\n",
        &["line 7", "once"],
    ),
    (
        "[node.r3]\napart_from = [\"r1\", \"r1\"]\n",
        &["line 5", "twice"],
    ),
    (
        "[node.r3]\ncpus = 0\n",
        &["line 5", "cpus is 0", "1 to 256"],
    ),
    ("[node.r3]\nmemory = 1\n", &["memory", "32 to 1048576"]),
    (
        "[node.r3]\nkind = \"namespace\"\nboot = \"clone\"\n",
        &["line 5", "boot"],
    ),
    ("[node.r3]\nboot = \"warm\"\n", &["line 6", "cold"]),
    ("[node.\"a b\"]\n", &["line 5", "`a b`", "letters"]),
    (
        "[node.r3]\nlocation = [\"new york\"]\n",
        &["line 5", "new york", "space"],
    ),
    (
        "[access.x]\nnode = \"r3\"\n",
        &["line 5, access point x", "`r3`"],
    ),
    (
        "[[test]]\nrtt_max = \"1s\"\n",
        &["line 5, test 1", "exactly one"],
    ),
    ("[[test]]\nthroughput = [\"r1\", \"r2\"]\n", &["rate_min"]),
    (
        "[[test]]\nping = [\"r1\", \"r2\"]\nrate_min = \"1bps\"\n",
        &["throughput"],
    ),
    ("[node.r1]\n", &["line 5", "duplicate key"]),
    ("[node.r3\n", &["line 5"]),
];

#[test]
fn lease_of_no_time_is_refused() {
    for lease in ["0s", "0ns", "0.0h"] {
        let text = HEAD.replace("\n[node.r1]", &format!("\nlease = \"{lease}\"\n[node.r1]"));
        let error = refusal(&text, Form::Toml);
        assert!(error.contains("vnet: lease is 0: give the time"), "{error}");
    }
}

#[test]
fn values_in_json_are_refused_with_one_place() {
    let text = "{\"vnet\": {\"name\": \"x\", \"lease\": \"soon\"}}";
    let error = refusal(text, Form::Json);
    assert!(error.starts_with("line 1: `soon` is not a time"), "{error}");
    assert!(!error.contains("column"), "{error}");
}

#[test]
fn toml_is_refused_with_line_and_remedy() {
    let link = "[[link]]\nends = [\"r1\", \"r2\"]\nrate = \"1Mbps\"\n";
    for (text, words) in WRONG {
        let error = refusal(&format!("{HEAD}{text}"), Form::Toml);
        for word in *words {
            assert!(
                error.contains(word),
                "`{word}` is missing in: {error}\n{text}"
            );
        }
    }
    let twice = link.replace("\"r2\"", "\"r2:eth0\"");
    let error = refusal(&format!("{HEAD}{twice}{twice}"), Form::Toml);
    assert!(
        error.contains("line 8, link 2") && error.contains("link 1"),
        "{error}"
    );
    assert!(refusal("[vnet]\nname = \"x\"\n", Form::Toml).contains("no node"));
}

#[test]
fn xml_is_refused_with_line_and_remedy() {
    let cases: &[(&str, &[&str])] = &[
        (
            "<vnet name='a'>\n<node name='b' cpu='1'/></vnet>",
            &["line 2", "`cpu`", "`cpus`"],
        ),
        (
            "<vnet name='a'>\n<nod name='b'/></vnet>",
            &["line 2", "`nod`", "`node`"],
        ),
        ("<vnet>\n<node name='b'/></vnet>", &["line 1", "`name`"]),
        (
            "<vnet name='a'>\n<node name='b'/>\n<node name='b'/></vnet>",
            &["line 3", "second"],
        ),
        (
            "<vnet name='a'>\n<node name='b' name='c'/></vnet>",
            &["line 2", "twice"],
        ),
        (
            "<vnet name='a'>\n<node name='b' cpus='two'/></vnet>",
            &["line 2", "cpus", "\"two\""],
        ),
        (
            "<vnet name='a'>\n<node name='b' boot='hot'/></vnet>",
            &["line 2", "boot", "cold"],
        ),
        (
            "<vnet name='a'>\n<node name='b'>text</node></vnet>",
            &["line 2", "text"],
        ),
        (
            "<vnet name='a'>\n<node name='b'/><link rate='1bps'/></vnet>",
            &["line 2", "0 ends"],
        ),
        (
            "<vnet name='a'>\n<node name='b'>",
            &["line 2", "is not closed"],
        ),
        ("<vnet name='a'>\n</node>", &["line 2"]),
        (
            "<!DOCTYPE v [<!ENTITY a 'aaaa'>]>\n<vnet name='&a;'/>",
            &["line 1", "DOCTYPE"],
        ),
        (
            "<vnet name='&lol;'><node name='b'/></vnet>",
            &["line 1", "lol"],
        ),
        (
            "<vnet name='a'>&lt;<node name='b'/></vnet>",
            &["line 1", "text"],
        ),
        (
            "<vnet name='a'><node name='b'/></vnet><vnet/>",
            &["second root"],
        ),
        ("<net name='a'/>", &["<vnet>"]),
        ("", &["<vnet"]),
        (
            "<vnet name='a'>\n\n<node name='b'/>\n<link rate='1bps'>\n<end node='b'/>\
             <end node='c'/></link></vnet>",
            &["line 4, link 1", "`c`"],
        ),
    ];
    for (text, words) in cases {
        let error = refusal(text, Form::Xml);
        let missing = words.iter().find(|word| !error.contains(**word));
        assert_eq!(missing, None, "{error}\n{text}");
    }
}

#[test]
fn sizes_depth_and_numbers_are_bounded() {
    let deep = "<vnet name='a'>".to_owned() + &"<node>".repeat(100_000);
    assert!(refusal(&deep, Form::Xml).contains("deeper"));
    let wide = format!("<vnet name='a'{}/>", " a='1'".repeat(100_000));
    assert!(refusal(&wide, Form::Xml).contains("twice"));
    let wide: String = (0..1000).map(|n| format!(" a{n}='1'")).collect();
    assert!(refusal(&format!("<vnet{wide}/>"), Form::Xml).contains("more than 32"));
    let nested = format!(
        "[vnet]\nname = {}1{}\n",
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    assert!(refusal(&nested, Form::Toml).starts_with("line 2"));
    let nested = format!("{{\"vnet\":{}", "[".repeat(100_000));
    assert!(refusal(&nested, Form::Json).starts_with("line 1"));
    let mut many = String::from("[vnet]\nname = \"x\"\n");
    for node in 0..10_000 {
        many.push_str(&format!("[node.n{node}]\n"));
    }
    let error = refusal(&many, Form::Toml);
    assert!(
        error.contains("10000 nodes") && error.contains("at most 2000"),
        "{error}"
    );
    let long = " ".repeat(limits::TEXT_MAX + 1);
    for form in Form::ALL {
        assert!(refusal(&long, form).contains("at most"));
    }
}

#[test]
fn errors_of_a_document_fit_on_a_page() {
    let mut text = String::from("[vnet]\nname = \"x\"\n[node.a]\n");
    for _ in 0..500 {
        text.push_str("[[link]]\nends = [\"b\", \"c\"]\nrate = \"1bps\"\n");
    }
    assert_eq!(refusal(&text, Form::Toml).lines().count(), 20);
}
