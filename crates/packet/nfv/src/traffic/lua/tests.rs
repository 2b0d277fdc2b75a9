//! Tests of the parser of Lua tables.

use super::*;

fn name(text: &str) -> Key {
    Key::Name(text.to_owned())
}

fn fields(text: &str) -> Vec<Field> {
    match parse(text).unwrap().value {
        Value::Table(fields) => fields,
        other => panic!("{other:?}"),
    }
}

fn values(text: &str) -> Vec<Value> {
    let fields = fields(&format!("return {{ {text} }}"));
    fields.into_iter().map(|field| field.node.value).collect()
}

fn texts(text: &str) -> Vec<String> {
    let strings = values(text).into_iter().map(|value| match value {
        Value::Text(text) => text,
        other => panic!("{other:?}"),
    });
    strings.collect()
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn every_form_of_a_field_is_read() {
    let read = fields("return { a = 1; ['b c'] = 2, [7] = 3, 4, \"five\", nil, x = { y = {} } }");
    let keys: Vec<String> = read.iter().map(|field| field.key.to_string()).collect();
    assert_eq!(keys, ["a", "b c", "[7]", "[1]", "[2]", "[3]", "x"]);
    assert_eq!(read[5].node.value, Value::Nil);
    let Value::Table(inner) = &read[6].node.value else {
        panic!("{:?}", read[6]);
    };
    assert_eq!(inner[0].key, name("y"));
    assert_eq!(inner[0].node.value, Value::Table(Vec::new()));
    assert_eq!(fields("{ 1, 2, };").len(), 2, "no return, and signs behind");
}

#[test]
fn numbers_are_read_as_lua_reads_them() {
    let read = values("0, 10, -3, 0.5, .5, 3e2, 2E-1, 0x1F, 1e+2");
    let wanted = [0.0, 10.0, -3.0, 0.5, 0.5, 300.0, 0.2, 31.0, 100.0];
    assert_eq!(read, wanted.map(Value::Number));
    for wrong in ["5a", "1.2.3", "0x", "0xg", "1e", "0x1p4"] {
        let message = error(&format!("{{ {wrong} }}"));
        assert_eq!(message, format!("line 1: {wrong} is not a number"));
    }
}

#[test]
fn strings_are_read_as_lua_reads_them() {
    let read = texts(r#""a", 'b"', "\n\\\"\65\0657\x41\u{20AC}", "1\z   2", "ä""#);
    assert_eq!(read, ["a", "b\"", "\n\\\"AA7A€", "12", "ä"]);
    assert_eq!(texts("\"a\\\nb\""), ["a\nb"]);
}

#[test]
fn long_strings_end_at_their_level() {
    assert_eq!(
        texts("[==[x]]]=]y]==], [[\nline\n]]"),
        ["x]]]=]y", "line\n"]
    );
}

#[test]
fn comments_of_both_kinds_are_passed_over() {
    let text =
        "#!/usr/bin/env lua\n-- one\nreturn --[[ two\nlines ]] {\n--[=[ ]] ]=] a = 1, -- end\n}";
    let read = fields(text);
    assert_eq!((read.len(), read[0].node.line), (1, 5));
}

#[test]
fn programs_are_refused_with_their_line() {
    let message = error("return {\n  a = os.time() }");
    assert_eq!(
        message,
        "line 2: os: the file may contain only table constructors, strings, numbers, true, false \
         and nil; it is not executed"
    );
    for program in [
        "local x = 1 return {}",
        "return { a = 1 .. 2 }",
        "return { (1) }",
        "return { a }",
        "return { a = -b }",
        "return f{}",
        "return {} .. {}",
    ] {
        assert!(error(program).contains("it is not executed"), "{program}");
    }
}

#[test]
fn wrong_text_is_refused_with_its_line() {
    let open = "line 2: found the end of the file, expected a comma or }";
    assert_eq!(error("return { a = 1\n"), open);
    assert_eq!(error("{\n'abc\n}"), "line 2: this string is not closed");
    assert_eq!(error("{\n\n[[abc"), "line 3: this string is not closed");
    assert_eq!(error("{ --[[ abc"), "line 1: this comment is not closed");
    assert!(error("{ '\\q' }").starts_with("line 1: \\q' "));
    assert!(error("{ '\\256' }").contains("escape"));
    assert_eq!(error("{ '\\255' }"), "line 1: this string is not UTF-8");
    assert_eq!(
        error("{ a = 1,\n a = 2 }"),
        "line 2: this table has a twice"
    );
    assert!(error("{} {}").contains("expected the end of the file"));
    assert!(error("").contains("expected a value"));
    assert!(error("{ [nil] = 1 }").contains("the name of a field"));
    assert!(error("{ $ }").contains("found '$'"));
    let deep = "{".repeat(DEPTH_MAX + 1);
    assert_eq!(
        error(&deep),
        "line 1: tables are nested deeper than 16 levels"
    );
}

#[test]
fn every_prefix_of_a_file_is_read_or_refused() {
    let text =
        "return { -- a\n { port_id = \"a\\065\", b = [=[ x ]=], c = 0x1f, [1] = -2.5e3 }, nil }";
    for end in 0..=text.len() {
        let is_whole = parse(&text[..end]).is_ok();
        assert_eq!(is_whole, end == text.len(), "{}", &text[..end]);
    }
}
