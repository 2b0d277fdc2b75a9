//! Tests of application names in ARP packets, in each dialect.

use super::*;

#[test]
fn names_cross_the_wire_in_both_dialects() {
    let name = |text: &str| AppName::new(text).unwrap();
    for (app, dialect, text) in [
        ("b.ipcp", Dialect::NATIVE, "b.ipcp"),
        ("org/app", Dialect::RLITE, "org/app"),
        (
            "rinaperf-data|server",
            Dialect::RLITE,
            "rinaperf-data|server",
        ),
        ("a||b", Dialect::NATIVE, "a||b"),
        ("test1.normal.DIF|1", Dialect::IRATI, "test1.normal.DIF/1//"),
        ("plain", Dialect::IRATI, "plain///"),
    ] {
        assert_eq!(to_text(&name(app), &dialect).as_deref(), Some(text));
        assert_eq!(from_text(text, &dialect), Some(name(app)));
    }
    assert_eq!(from_text("", &Dialect::NATIVE), None);
    assert_eq!(from_text("a|1||", &Dialect::NATIVE), Some(name("a|1")));
    for dialect in [Dialect::RLITE, Dialect::IRATI] {
        assert_eq!(to_text(&name("a|b|c|d|e"), &dialect), None);
    }
    // A receiver would read it as two parts.
    assert_eq!(to_text(&name("org/app"), &Dialect::IRATI), None);
}
