//! What a script can do with packets, links, counters and time.

use crate::rig::Rig;

/// A script whose `push` has this body; `i` and `o` are its links.
fn push(body: &str) -> String {
    format!(
        "local App = {{}}\nfunction App:push()\nlocal i, o = self.input.input, self.output.output\n\
         {body}\nend\nreturn App\n"
    )
}

/// A script that does this with each packet `p`, and sends it.
fn each(body: &str) -> String {
    push(&format!(
        "while not link.empty(i) do\nlocal p = link.receive(i)\n{body}\nlink.transmit(o, p)\nend"
    ))
}

#[test]
fn packets_are_read_and_changed_in_place() {
    let mut rig = Rig::new(&each(
        "assert(p.length == 8 and packet.length(p) == 8 and packet.data(p)[1] == 2)\n\
         assert(p.data[1] == 2 and p[1] == 2 and p:u8(1) == 2)\n\
         assert(p:u16(0) == 0x0102 and p:u32(4) == 0xfffefdfc, p:u32(4))\n\
         assert(p:bytes(0, 3) == '\\1\\2\\3' and #p:bytes() == 8 and #p:bytes(6) == 2)\n\
         p.data[0] = 300\np:set_u16(2, 0xaabb)\np:set_u32(4, 0xdeadbeef)\n\
         p:set_bytes(1, 'z')",
    ));
    let out = rig.through(&[1, 2, 3, 4, 0xff, 0xfe, 0xfd, 0xfc]);
    assert_eq!(rig.notices(), [""; 0]);
    assert_eq!(out, [[44, b'z', 0xaa, 0xbb, 0xde, 0xad, 0xbe, 0xef]]);
}

#[test]
fn packets_grow_and_shrink_at_both_ends() {
    let mut rig = Rig::new(&each(
        "p:shiftleft(2)\np:prepend('head')\np:append('tail')\nassert(p.length == 12)\n\
         p:resize(14)\np.length = 13\np:shiftright(1)",
    ));
    assert_eq!(rig.through(b"..1234"), [b"\0head1234tail\0"]);
    assert_eq!(rig.notices(), [""; 0]);
}

#[test]
fn checksum_is_that_of_rfc_1071() {
    let mut rig = Rig::new(&each(
        "assert(p:checksum(0, 8) == 0x220d, p:checksum(0, 8))\n\
         assert(p:checksum(0, 3) == 65535 - 0xf201)",
    ));
    // The example of RFC 1071, section 3.
    rig.through(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(rig.notices(), [""; 0]);
}

#[test]
fn new_packets_come_from_the_pool_and_go_back() {
    let mut rig = Rig::new(&push(
        "while not link.empty(i) do\nlocal p = link.receive(i)\nlocal q = packet.clone(p)\n\
         q[0] = 9\nlink.transmit(o, q)\nlink.transmit(o, packet.from_string('new'))\n\
         local r = packet.allocate()\nassert(r.length == 0)\npacket.free(r)\n\
         packet.allocate()\nlink.transmit(o, p)\nend",
    ));
    for _ in 0..500 {
        assert_eq!(rig.through(b"old"), [*b"\x09ld", *b"new", *b"old"]);
    }
    assert_eq!(rig.notices(), [""; 0]);
    assert_eq!(
        (rig.counter("drop_freed"), rig.counter("drop_forgotten")),
        (1000, 0)
    );
    // No frame leaks: after the app has ended, all frames are in the pool.
    drop(rig.network.configure(&carina_frame_engine::Graph::new()));
    assert_eq!(rig.network.pool().spare(), 4096);
}

#[test]
fn one_call_makes_at_most_512_packets() {
    let mut rig = Rig::new(&push(
        "link.receive(i)\nlocal n = 0\nwhile packet.allocate() do n = n + 1 end\n\
         link.transmit(o, packet.from_string(tostring(n)) or error(tostring(n)))",
    ));
    rig.through(b"x");
    assert_eq!(rig.stopped(), "app.lua:7: 512");
}

#[test]
fn what_is_not_received_stays_on_the_link() {
    let mut rig = Rig::new(&push(
        "assert(link.nreadable(i) > 0 and not link.full(o) and link.nwritable(o) > 100)\n\
         link.transmit(o, link.receive(i))",
    ));
    rig.feed("input", (0..5).map(|n| vec![n]));
    assert_eq!(rig.out("output"), [[0], [1], [2]]);
    rig.breathe();
    assert_eq!(rig.out("output"), [[3], [4]]);
    assert_eq!(rig.notices(), [""; 0]);
}

#[test]
fn frames_keep_their_order_over_bursts_and_outputs() {
    let script = "local App = {}\nfunction App:push()\nlocal i = self.input.input\n\
        while not link.empty(i) do\nlocal p = link.receive(i)\n\
        link.transmit(self.output[p[1] % 2 + 1], p)\nend\nend\nreturn App";
    let mut rig = Rig::with(script, "", &["input"], &["a", "b"]);
    rig.feed("input", (0..1000u16).map(|n| n.to_be_bytes().to_vec()));
    let wanted = |odd: u16| {
        (0..1000)
            .filter(move |n| n % 2 == odd)
            .map(u16::to_be_bytes)
    };
    assert_eq!(rig.out("a"), wanted(0).map(Vec::from).collect::<Vec<_>>());
    assert_eq!(rig.out("b"), wanted(1).map(Vec::from).collect::<Vec<_>>());
    assert_eq!(rig.notices(), [""; 0]);
}

#[test]
fn frames_that_are_freed_or_forgotten_are_counted() {
    let mut rig = Rig::new(&push(
        "local p, q = link.receive(i), link.receive(i)\npacket.free(p)\nlink.receive(i)",
    ));
    rig.feed("input", (0..3).map(|n| vec![n]));
    assert_eq!(
        (rig.counter("drop_freed"), rig.counter("drop_forgotten")),
        (1, 2)
    );
}

#[test]
fn packet_is_of_one_call_and_goes_once() {
    for (body, wanted) in [
        (
            "kept = kept or link.receive(i)\nlocal x = kept.length",
            "is of an earlier call",
        ),
        (
            "local p = link.receive(i)\nlink.transmit(o, p)\nlink.transmit(o, p)",
            "sent or freed",
        ),
        (
            "local p = link.receive(i)\npacket.free(p)\nlocal x = p[0]",
            "sent or freed",
        ),
        ("local x = (5)[0]", "sent or freed"),
        (
            "local x = link.receive(i):u16(0)",
            "2 bytes at 0 of a packet of 1",
        ),
        (
            "local x = link.receive(i)[1]",
            "1 bytes at 1 of a packet of 1",
        ),
        (
            "local x = link.receive(i)[-1]",
            "1 bytes at -1 of a packet of 1",
        ),
        (
            "local p = link.receive(i)\np[1] = 5",
            "1 bytes at 1 of a packet of 1",
        ),
        ("local x = link.receive(i):u8(0/0)", "bytes at"),
        (
            "link.receive(i):set_bytes(0, 'ab')",
            "2 bytes at 0 of a packet of 1",
        ),
        ("local x = link.receive(i):bytes(1, 1)", "1 bytes at 1"),
        ("local x = link.receive(i):bytes(0, -1)", "-1 bytes at 0"),
        ("local x = link.receive(i):checksum(0, 5)", "5 bytes at 0"),
        ("link.receive(i):shiftleft(2)", "2 bytes at 0"),
        (
            "link.receive(i):shiftright(1000)",
            "no room for 1000 bytes in front",
        ),
        (
            "link.receive(i):resize(1e6)",
            "a packet of 1000000 bytes: there is room for",
        ),
        ("link.receive(i):u16('0')", "must be numbers"),
        ("link.receive(7)", "no input: 7"),
        ("link.transmit(i, link.receive(i))", "no output: 0"),
        ("link.transmit(o, nil)", "not a packet: nil"),
        ("link.empty(self.input.typo)", "no input: nil"),
        ("counter.add(5)", "no counter: 5"),
        (
            "counter.create('late')",
            "counters must be created while the app starts: at the top of the script or in new",
        ),
    ] {
        let mut rig = Rig::new(&push(body));
        rig.feed("input", [vec![1]]);
        rig.feed("input", [vec![1]]);
        let reason = rig.stopped();
        assert!(reason.contains(wanted), "{body}: {reason}");
        let line: usize = reason.split(':').nth(1).unwrap().parse().unwrap();
        assert!(
            (4..8).contains(&line) && reason.starts_with("app.lua:"),
            "{reason}"
        );
    }
}

#[test]
fn script_has_its_configuration() {
    let script = "local App = {}\nfunction App:new(c)\nassert(c.n == 5 and c.x == 0.5 and c.is)\n\
        assert(c.list[2] == 'b' and c.table.key == 'value')\n\
        return setmetatable({}, { __index = App })\nend\nfunction App:push() end\nreturn App";
    let keys = "config = { n = 5, x = 0.5, is = true, list = ['a', 'b'], table.key = 'value' }";
    Rig::with(script, keys, &["input"], &[]);
    let script = "local App = {}\nfunction App:push() assert(self.config.n == 5) end\nreturn App";
    let mut rig = Rig::with(script, "config.n = 5", &["input"], &[]);
    rig.feed("input", [vec![0]]);
    assert_eq!(rig.notices(), [""; 0]);
}

#[test]
fn ticks_and_pulls_come_when_they_are_due() {
    let script = "local App = { tick_every = 0.05 }\nfunction App:new()\n\
        return setmetatable({ ticks = 0, due = 1.3 }, { __index = App })\nend\n\
        function App:tick() self.ticks = self.ticks + 1 end\n\
        function App:pull()\nif engine.now() >= self.due then\n\
        link.transmit(self.output.output, packet.from_string(('%d'):format(self.ticks)))\n\
        self.due = self.due + 1000\nend\nreturn self.due\nend\nreturn App";
    let mut rig = Rig::with(script, "", &[], &["output"]);
    rig.breathe();
    let due = rig.network.next_deadline().unwrap();
    assert_eq!(due.as_millis(), 1050);
    for _ in 0..10 {
        rig.pass_ms(40);
    }
    // From second 1.0 on, a tick comes with the first breath at least 50 ms after the last tick.
    assert_eq!(rig.out("output"), [b"5"]);
    assert_eq!(rig.notices(), [""; 0]);
}

#[test]
fn source_in_lua_fills_a_link_burst_by_burst() {
    let script = "local App = {}\nfunction App:pull()\nlocal o = self.output.output\n\
        for n = 1, 10 do link.transmit(o, packet.from_string('x')) end\nend\nreturn App";
    let mut rig = Rig::with(script, "", &[], &["output"]);
    rig.breathe();
    assert_eq!(rig.out("output").len(), 30);
}

#[test]
fn counters_have_the_names_that_scripts_give() {
    let script = "local App = {}\nfunction App:new()\nlocal c = counter.create('seen')\n\
        counter.set(c, 40)\nassert(counter.create('seen') == c)\n\
        return setmetatable({ c = c }, { __index = App })\nend\nfunction App:push()\n\
        counter.add(self.c, 2)\nlink.receive(self.input.input)\n\
        assert(counter.read(self.c) == 42)\n\
        end\nreturn App";
    let mut rig = Rig::new(script);
    assert_eq!(rig.counter("seen"), 40);
    rig.through(b"x");
    assert_eq!((rig.counter("seen"), rig.counter("stopped")), (42, 0));
    let wrong = |name: &str| {
        let script = format!("counter.create({name})\nreturn {{ push = function() end }}");
        Rig::try_with(&script, "", &["input"], &[]).1.unwrap_err()
    };
    assert!(
        wrong("'a b'").contains("app.lua:1: counter \"a b\": a name must have 1 to 48 letters")
    );
    assert!(wrong("'drop_freed'").contains("this name is reserved"));
}

#[test]
fn apps_are_written_as_for_snabb() {
    let script = "module(..., package.seeall)\n";
    let made = Rig::try_with(script, "", &["input"], &[]).1;
    let error = made.unwrap_err();
    assert!(
        error.contains("app.lua:1: attempt to index global 'package'"),
        "{error}"
    );
    let script = "local link = require('core.link')\nlocal packet = require('core.packet')\n\
        local Repeater = {}\nfunction Repeater:new(conf)\n\
        return setmetatable({ n = conf.n }, { __index = Repeater })\nend\n\
        function Repeater:push()\nlocal i, o = self.input.input, self.output.output\n\
        while not link.empty(i) do\nlocal p = link.receive(i)\nfor _ = 2, self.n do\n\
        link.transmit(o, packet.clone(p))\nend\n\
        if p.length > 1 then link.transmit(o, p) else packet.free(p) end\nend\nend\n\
        return Repeater";
    let mut rig = Rig::with(script, "config.n = 3", &["input"], &["output"]);
    assert_eq!(rig.through(b"ab"), [b"ab"; 3]);
}

#[test]
fn what_is_printed_is_a_notice() {
    let mut rig = Rig::new(&each("print('length', p.length, nil, 'a\\nb')"));
    rig.through(b"xy");
    assert_eq!(
        rig.notices(),
        ["app: length\t2\tnil\ta b".replace('\t', " ")]
    );
}
