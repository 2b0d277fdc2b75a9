//! Scripts that fail are stopped and named with file and line, and disturb nothing else.

use std::time::{Duration, Instant};

use crate::rig::Rig;

const BUDGET: &str = "budget_ms = 5";

/// A script whose `push` has this body.
fn push(body: &str) -> String {
    format!("local App = {{}}\nfunction App:push()\n{body}\nend\nreturn App\n")
}

#[test]
fn script_that_raises_an_error_is_stopped_and_named() {
    let body = "local p = link.receive(self.input.input)\nif p[0] == 3 then\nlocal t\n\
                t.field = 5\nend\nlink.transmit(self.output.output, p)";
    let mut rig = Rig::new(&push(body));
    rig.feed("input", [vec![1], vec![2], vec![3], vec![4]]);
    rig.breathe();
    assert_eq!(rig.out("output"), [[1], [2]]);
    assert_eq!(
        rig.stopped(),
        "app.lua:6: attempt to index local 't' (a nil value)"
    );
    assert_eq!(
        (rig.counter("stopped"), rig.counter("drop_stopped")),
        (1, 1)
    );
    // Later frames are dropped and counted; the script is not called again.
    rig.feed("input", (0..10).map(|n| vec![n]));
    assert_eq!(rig.counter("drop_stopped"), 11);
    assert_eq!(rig.network.next_deadline(), None);
    assert_eq!(rig.notices(), [""; 0]);
}

/// Runs a script that does not return: the reason why it was stopped, and how long it ran.
fn overrun(body: &str) -> (String, Duration) {
    let mut rig = Rig::with(&push(body), BUDGET, &["input"], &["output"]);
    let begin = Instant::now();
    rig.feed("input", [vec![1]]);
    (rig.stopped(), begin.elapsed())
}

#[test]
fn script_that_does_not_return_is_stopped_where_it_is() {
    for (body, line) in [
        // A loop that is compiled to machine code.
        ("while true do end", 3),
        ("local n = 0\nwhile true do\nn = n + 1\nend", 4),
        ("for i = 1, math.huge do local x = i * 2 end", 3),
        ("repeat until false", 3),
        ("::again:: goto again", 3),
        // Recursive calls that are compiled to a loop.
        ("local function f(n) return f(n + 1) end\nf(1)", 3),
        // A loop with calls that are inlined.
        (
            "local i = self.input.input\nwhile true do link.empty(i) end",
            4,
        ),
        (
            "local p = link.receive(self.input.input)\nwhile true do p[0] = p[0] + 1 end",
            4,
        ),
        // A loop that is not compiled, because its calls cannot be.
        ("while true do string.reverse(tostring({})) end", 3),
        // Errors that the script catches.
        (
            "while true do pcall(function() while true do end end) end",
            3,
        ),
        ("local function f() while true do end end\nxpcall(f, f)", 3),
        (
            "error(setmetatable({}, { __tostring = function() while true do end end }))",
            3,
        ),
        (
            "while true do xpcall(function() while true do end end, function() end) end",
            3,
        ),
        ("local function f() pcall(f) while true do end end\nf()", 3),
        // Patterns that take exponential time, and library functions that run long.
        ("('a'):rep(30):find(('a?'):rep(30) .. ('a'):rep(30))", 3),
        ("('a'):rep(1e6):find(('a'):rep(5e5) .. 'b', 1, true)", 3),
        ("('a'):rep(1e5):match(('.-'):rep(50) .. 'b')", 3),
        (
            "table.sort({ 1, 2, 3 }, function() while true do end end)",
            3,
        ),
        ("for _ in ('a'):rep(1e6):gmatch('(.-)(.-)(.-)b') do end", 3),
        (
            "local x = setmetatable({}, { __index = function() while true do end end }).x",
            3,
        ),
    ] {
        let (reason, time) = overrun(body);
        // A loop may be interrupted at its first line, its last line, or between.
        let last = 3 + body.lines().count();
        let mut places = (line..=last).map(|line| {
            format!(
                "app.lua:{line}: the call does not return: it has used 5 ms of CPU time (budget_ms)"
            )
        });
        assert!(places.any(|wanted| reason == wanted), "{body}: {reason}");
        assert!(time < Duration::from_secs(20), "{body}: {time:?}");
    }
}

#[test]
fn other_apps_go_on_while_one_is_stopped() {
    let script = "local App = {}\nfunction App:push()\nlocal p = link.receive(self.input.input)\n\
        local first = p[0]\nlink.transmit(self.output.output, p)\n\
        if first == 7 then while true do end end\nend\nreturn App";
    let mut rig = Rig::with(script, BUDGET, &["input"], &["output"]);
    rig.feed("input", [vec![1]]);
    rig.feed("input", [vec![7]]);
    rig.feed("input", [vec![1]]);
    // Frames that the script had sent before it was stopped in that call still leave.
    assert_eq!(rig.out("output"), [[1], [7]]);
    assert_eq!(
        rig.stopped(),
        "app.lua:6: the call does not return: it has used 5 ms of CPU time (budget_ms)"
    );
    // A corrected script replaces the stopped one.
    rig.load(&script.replace("== 7", "== 8")).unwrap();
    assert_eq!(rig.through(&[7]), [[7]]);
    assert_eq!(rig.counter("stopped"), 0);
}

#[test]
fn long_calls_within_the_budget_are_not_stopped() {
    let body = "link.receive(self.input.input)\nlocal n = 0\nfor i = 1, 3e6 do n = n + i % 7 end";
    let mut rig = Rig::with(&push(body), "budget_ms = 10000", &["input"], &["output"]);
    for _ in 0..5 {
        rig.feed("input", [vec![1]]);
    }
    assert_eq!(rig.notices(), [""; 0]);
}

#[test]
fn making_an_app_has_a_budget_too() {
    let made = |script: &str| {
        Rig::try_with(script, BUDGET, &["input"], &[])
            .1
            .unwrap_err()
    };
    let error = made("local t = 5\nwhile true do end");
    assert!(
        error.contains(
            "app.lua:2: the call does not return: it has used 200 ms of CPU time (budget_ms)"
        ),
        "{error}"
    );
}

#[test]
fn memory_has_a_limit() {
    for body in [
        "local t = {}\nwhile true do t[#t + 1] = {} end",
        "local s = 'x'\nwhile true do s = s .. s end",
        "self.t = self.t or {}\nfor i = 1, 1e9 do self.t[i] = tostring(i) end",
        "('x'):rep(1e9)",
    ] {
        let keys = "memory_mb = 8\nbudget_ms = 10000";
        let mut rig = Rig::with(&push(body), keys, &["input"], &["output"]);
        rig.feed("input", [vec![1]]);
        let wanted = "app.lua: not enough memory: the script may use 8 MB (memory_mb)";
        assert_eq!(rig.stopped(), wanted, "{body}");
        // The next script begins with memory of its own.
        rig.load(
            "local App = {}\nfunction App:push()\nlink.transmit(self.output.output, \
            link.receive(self.input.input))\nend\nreturn App",
        )
        .unwrap();
        assert_eq!(rig.through(b"x"), [b"x"]);
    }
}

#[test]
fn wrong_scripts_are_refused_with_their_line() {
    let refusal =
        |script: &str, keys: &str| Rig::try_with(script, keys, &["input"], &[]).1.unwrap_err();
    let error = refusal("local x = 1\nlocal y = = 2", "");
    assert_eq!(
        error,
        "line 2: apps.app (lua): app.lua:2: unexpected symbol near '='"
    );
    assert!(
        refusal("local x", "").contains("app.lua: the script must return a table with the methods")
    );
    assert!(
        refusal("return {}", "")
            .contains("app.lua: the app must have at least one of the methods push, pull and tick")
    );
    assert!(refusal("return { push = 5 }", "").contains("app.lua: push must be a function"));
    let error = refusal("error({})", "");
    assert!(
        error.contains("the script raised a table as an error") && !error.contains("0x"),
        "{error}"
    );
    let error = refusal("error('no')", "");
    assert!(error.contains("app.lua:1: no"), "{error}");
    let error = refusal(
        "return { new = function() error('no port', 0) end, push = print }",
        "",
    );
    assert!(error.contains("app.lua:1: no port"), "{error}");
    let fine = "return { push = function() end }";
    assert!(refusal(fine, "memory_mb = 1").contains("memory_mb = 1: must be 2 to 1024"));
    assert!(refusal(fine, "budget_ms = 0").contains("budget_ms = 0: must be 1 to 10000"));
    assert!(refusal(fine, "budget = 5").contains("unknown field `budget`"));
    let (rig, _) = Rig::try_with(fine, "", &["input"], &[]);
    let text = "[apps.a]\nkind = 'lua'\nfile = 'none.lua'";
    let read = carina_graph::graph_file::read_graph_in(text, rig.directory(), &[carina_lua::KIND]);
    let error = read.unwrap_err().to_string();
    assert!(error.contains("none.lua: No such file"), "{error}");
}
