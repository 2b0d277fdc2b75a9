//! What a script cannot access, and what it can access if the configuration allows it.

use crate::rig::Rig;

/// Starts a script with this code; fails if an assertion in it fails.
fn asserted(code: &str, keys: &str) -> Result<(), String> {
    let script = format!("{code}\nreturn {{ push = function() end }}");
    Rig::try_with(&script, keys, &["input"], &[]).1
}

#[test]
fn nothing_outside_of_the_script_is_in_reach() {
    for name in [
        "io",
        "os",
        "ffi",
        "jit",
        "debug",
        "package",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "getfenv",
        "setfenv",
        "newproxy",
        "module",
        "collectgarbage",
        "coroutine",
        "gcinfo",
        "string.dump",
        "string.buffer",
        "math.randomise",
        "table.foreach",
    ] {
        asserted(&format!("assert({name} == nil, 'is there')"), "").unwrap();
    }
    for name in ["ffi", "io", "os", "jit", "debug"] {
        let error = asserted(&format!("require('{name}')"), "").unwrap_err();
        assert!(
            error.contains(&format!("app.lua:1: there is no module {name}")),
            "{error}"
        );
    }
    asserted(
        "assert(getmetatable('') == false and getmetatable(5) == false)",
        "",
    )
    .unwrap();
    asserted("assert(not pcall(setmetatable, 5, {}))", "").unwrap();
    asserted(
        "for k, v in pairs(_G) do assert(type(v) ~= 'cdata', k) end",
        "",
    )
    .unwrap();
}

#[test]
fn configuration_decides_which_libraries_exist() {
    let code = "local f = assert(io.open('/proc/self/status'))\nassert(f:read('*l'))\nf:close()";
    assert!(asserted(code, "").is_err());
    asserted(code, "allow = ['io']").unwrap();
    asserted("assert(os.time() > 0)", "allow = ['os']").unwrap();
    asserted(
        "assert(require('ffi').sizeof('int') == 4)",
        "allow = ['ffi']",
    )
    .unwrap();
    let error = asserted("", "allow = ['net']").unwrap_err();
    assert!(
        error.contains("unknown variant `net`, expected one of `io`, `os`, `ffi`"),
        "{error}"
    );
}

#[test]
fn one_script_does_not_change_the_prelude_of_its_successor() {
    let evil = "string.format = function() return 'evil' end\nmath.floor = nil\n\
        table.concat = nil\nlink.receive = nil\ncounter.create = nil\npacket.u8 = nil\n\
        return { push = function() end }";
    let mut rig = Rig::new(evil);
    let fine = "local App = {}\nfunction App:push()\nlocal p = link.receive(self.input.input)\n\
        p:checksum(0, 1)\nlink.transmit(self.output.output, p)\nend\nreturn App";
    rig.load(fine).unwrap();
    assert_eq!(rig.through(b"x"), [b"x"]);
}

#[test]
fn patterns_are_those_of_lua() {
    // Results of Lua 5.1, by its reference manual, section 5.4.1.
    for code in [
        "local a, b, c = ('key = value'):find('^(%w+)%s*=')\n\
         assert(a == 1 and b == 5 and c == 'key')",
        "assert(('hello'):match('l+') == 'll')",
        "assert(('a.b'):find('.', 1, true) == 2)",
        "assert(('  x '):gsub('^%s*(.-)%s*$', '%1') == 'x')",
        "assert(('abc'):gsub('', '-') == '-a-b-c-')",
        "assert(('hello world'):gsub('o', '0', 1) == 'hell0 world')",
        "assert(('$name'):gsub('%$(%w+)', { name = 'lua' }) == 'lua')",
        "assert(('abc'):gsub('%w', function(c) return c == 'b' and 'B' or nil end) == 'aBc')",
        "assert(('f(a(b)c)d'):match('%b()') == '(a(b)c)')",
        "assert(('THE (quick) fox'):find('%((%a+)%)') == 5)",
        "assert(('[[x]]'):match('%[%[(.*)%]%]') == 'x')",
        "assert(('x=1, y=2'):gsub('(%w+)=(%w+)', '%2=%1') == '1=x, 2=y')",
        "local t = {}\nfor k, v in ('a=1,b=2'):gmatch('(%w)=(%w)') do t[k] = v end\n\
         assert(t.a == '1' and t.b == '2')",
        "assert(('THE quick'):gsub('%f[%a]%a+', 'w') == 'w w')",
        "assert(('aXb'):match('[^%l]') == 'X' and ('a-b'):match('[a%-]+') == 'a-')",
        "assert(('2026-11'):match('^(%d%d%d%d)-(%d+)$') == '2026')",
        "assert(('abab'):match('(ab)%1') == 'ab' and ('abc'):match('()c') == 3)",
        "assert(('x'):match('y') == nil and ('x'):find('') == 1 and ('x'):match('x?y?') == 'x')",
        "assert(('a,b,,c'):gsub(',', ';') == 'a;b;;c' and ('aaa'):match('a-$') == 'aaa')",
        "assert(('0x1F'):match('^0[xX](%x+)$') == '1F')",
        "assert(not pcall(string.match, 'x', '[a') and not pcall(string.match, 'x', '(x'))",
        "assert(not pcall(string.match, 'x', '%') and not pcall(string.gsub, 'x', 'x', '%2'))",
        "assert(not pcall(string.rep) and not pcall(string.find, 'x'))",
        "assert(('\\0a\\0'):match('%z(a)%z') == 'a' and ('a b'):match('%S+$') == 'b')",
    ] {
        asserted(code, "").unwrap_or_else(|error| panic!("{code}: {error}"));
    }
}

#[test]
fn sort_is_that_of_lua() {
    asserted(
        "for n = 0, 50 do\nlocal t, s = {}, 7\nfor i = 1, n do\ns = s * 16807 % 2147483647\n\
         t[i] = s % 20\nend\nlocal u = { unpack(t) }\ntable.sort(t)\n\
         for i = 2, n do assert(t[i - 1] <= t[i]) end\n\
         table.sort(u, function(a, b) return a > b end)\n\
         for i = 2, n do assert(u[i - 1] >= u[i]) end\nend",
        "",
    )
    .unwrap();
}

#[test]
fn bytecode_is_refused() {
    let error = asserted("\u{1b}LJ", "").unwrap_err();
    assert!(error.contains("app.lua"), "{error}");
}

#[test]
fn recursion_ends_with_an_error() {
    for code in [
        "local function f() return 1 + f() end\nf()",
        "local t = setmetatable({}, { __index = function(t, k) return t[k + 1] end })\nreturn t[1]",
        "local t = setmetatable({}, {})\n\
         getmetatable(t).__tostring = function(t) return ('%s'):format(t) end\ntostring(t)",
        "local t = setmetatable({}, {})\n\
         getmetatable(t).__tostring = function(t) print(t) return '' end\nprint(t)",
        "local t = setmetatable({}, {})\n\
         getmetatable(t).__lt = function(a, b) table.sort({ t, t, t }) return true end\n\
         table.sort({ t, t, t })",
        "local function f() ('x'):gsub('x', f) end\nf()",
        "local t = setmetatable({}, {})\n\
         getmetatable(t).__concat = function(a, b) return a .. b end\n\
         return t .. t",
        "local function f() xpcall(f, f) error('x') end\nf()",
        "error(setmetatable({}, { __tostring = function() while true do end end }))",
        "local function f() return pcall(f) end\nf()\nerror('deep')",
    ] {
        let error = asserted(code, "budget_ms = 5").unwrap_err();
        assert!(error.contains("app.lua"), "{code}: {error}");
    }
}
