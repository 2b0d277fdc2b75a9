//! Checks `docs/how-to/lua.md`: its graph and its script are valid, and it names all that scripts
//! can use.

use std::path::Path;

use carina_graph::graph_file::read_graph_in;

use crate::notation::frame;
use crate::rig::Rig;

const PAGE: &str = include_str!("../../../../docs/how-to/lua.md");

fn block(language: &str) -> &'static str {
    let (_, block) = PAGE.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0
}

#[test]
fn graph_of_the_page_is_right() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/lua");
    let (graph, files) = read_graph_in(block("toml"), &examples, &[carina_lua::KIND]).unwrap();
    assert_eq!(graph.apps().count(), 3);
    assert_eq!(files, [examples.join("filter.lua")]);
}

#[test]
fn script_of_the_page_filters() {
    let script = block("lua");
    let mut rig = Rig::with(script, "config.port = 9", &["input"], &["output"]);
    let good = frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | udp 5 > 9 | \"x\"");
    let other = frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | udp 5 > 10 | \"x\"");
    rig.feed("input", [good.clone(), other]);
    assert_eq!(rig.out("output"), [good]);
    assert_eq!(
        (rig.counter("drop_filter"), rig.counter("drop_freed")),
        (1, 1)
    );
}

#[test]
fn page_has_every_function() {
    let script = "local names = {}\n\
        for _, t in ipairs({ 'link', 'packet', 'counter', 'engine' }) do\n\
        for name in pairs(_G[t]) do names[#names + 1] = t .. '.' .. name end\nend\n\
        print(table.concat(names, ' '))\nreturn { push = function() end }";
    let rig = Rig::with(script, "", &["input"], &[]);
    let printed = rig.notices().concat();
    let names: Vec<&str> = printed.strip_prefix("app: ").unwrap().split(' ').collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        let method = name.replace("packet.", "p:");
        let is_documented = [name, &method]
            .iter()
            .any(|name| PAGE.contains(&format!("{name}(")));
        assert!(is_documented, "{name}");
    }
}
