//! Tests that replace a script while its app runs.

use crate::rig::Rig;

/// A script that writes consecutive numbers into packets, with the increment `add`.
fn numbers(add: &str, inherit: &str) -> String {
    format!(
        "local App = {{}}\nfunction App:new()\n\
         return setmetatable({{ n = 0, c = counter.create('seen') }}, {{ __index = App }})\nend\n\
         {inherit}\nfunction App:push()\nlocal p = link.receive(self.input.input)\n\
         self.n = self.n + {add}\np[0] = self.n\ncounter.add(self.c)\n\
         link.transmit(self.output.output, p)\nend\nreturn App\n"
    )
}

const INHERIT: &str = "function App:inherit(old) self.n = old.n end";

#[test]
fn script_has_what_its_predecessor_knew_if_it_wants() {
    let mut rig = Rig::new(&numbers("1", ""));
    assert_eq!(
        (rig.through(b"x"), rig.through(b"x")),
        (vec![vec![1]], vec![vec![2]])
    );
    rig.load(&numbers("10", INHERIT)).unwrap();
    assert_eq!(rig.through(b"x"), [[12]]);
    rig.load(&numbers("1", "")).unwrap();
    assert_eq!(rig.through(b"x"), [[1]]);
    // The counter continues.
    assert_eq!(rig.counter("seen"), 4);
}

#[test]
fn wrong_successor_changes_nothing() {
    let script = numbers("1", "");
    let mut rig = Rig::with(&script, "budget_ms = 10", &["input"], &["output"]);
    rig.through(b"x");
    for wrong in [
        "local x = = 1",
        "error('no')",
        "return 5",
        "while true do end",
    ] {
        rig.load(wrong).unwrap_err();
    }
    assert_eq!(rig.through(b"x"), [[2]]);
    // A script whose `inherit` fails has already replaced the old one, and is stopped.
    rig.load(&numbers("1", "function App:inherit(old) error('no') end"))
        .unwrap();
    assert_eq!(rig.through(b"x"), [[0; 1]; 0]);
    assert_eq!(rig.stopped(), "app.lua:5: no");
    // The next script, which is correct, still inherits the old tables.
    rig.load(&numbers("1", INHERIT)).unwrap();
    assert_eq!(rig.through(b"x"), [[1]]);
}

#[test]
fn waiting_frames_pass_to_the_successor() {
    let lazy = "return { push = function() end }";
    let mut rig = Rig::new(lazy);
    rig.feed("input", (0..3).map(|n| vec![n]));
    rig.load(&numbers("1", INHERIT.replace("old.n", "5").as_str()))
        .unwrap();
    rig.breathe();
    assert_eq!(rig.out("output"), [[6], [7], [8]]);
}

#[test]
fn hundred_reloads_leak_nothing() {
    let script = |n: usize| {
        format!(
            "local big = ('x'):rep(1e6) .. {n}\nlocal App = {{}}\nfunction App:push()\n\
            link.transmit(self.output.output, link.receive(self.input.input))\nreturn #big\nend\n\
            return App"
        )
    };
    let mut rig = Rig::with(&script(0), "memory_mb = 16", &["input"], &["output"]);
    for n in 1..100 {
        rig.load(&script(n)).unwrap();
        assert_eq!(rig.through(b"x"), [b"x"]);
    }
    assert_eq!(rig.notices(), [""; 0]);
}
