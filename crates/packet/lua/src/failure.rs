//! Explains in one line why a script was stopped: `nat.lua:12: attempt to index a nil value`.

use std::time::Duration;

use mlua::Error;

/// Describes an error of a script in one line: file, line number, and what is wrong.
pub(crate) fn line_of(error: &Error, script: &str, memory_bytes: usize) -> String {
    match error {
        Error::MemoryError(_) => memory(script, memory_bytes),
        Error::CallbackError { traceback, cause } => match &**cause {
            Error::MemoryError(_) => memory(script, memory_bytes),
            cause => with_place(&cause.to_string(), traceback, script),
        },
        Error::RuntimeError(text) if text.starts_with(NO_MEMORY) => memory(script, memory_bytes),
        Error::RuntimeError(text) => with_place(text, text, script),
        error => with_place(&error.to_string(), "", script),
    }
}

/// Describes in one line that a call exceeded its CPU time.
pub(crate) fn overrun(place: &str, budget: Duration) -> String {
    format!(
        "{place}: the call does not return: it has used {} ms of CPU time (budget_ms)",
        budget.as_millis()
    )
}

/// The type of a value that was raised as an error and is not a string. The library prints such a
/// value as `table: 0x55d0c8`, `<table 0x55d0c8>` or `nil`. `None` for other texts.
fn kind_of_value(line: &str) -> Option<&'static str> {
    let value = line
        .strip_prefix('<')
        .and_then(|strip_prefix| strip_prefix.strip_suffix('>'));
    let value = value.unwrap_or(line);
    let kinds = ["table", "function", "userdata", "lightuserdata", "thread"];
    let is_shown = |kind: &&str| {
        let rest = value.strip_prefix(*kind).unwrap_or_default();
        rest.starts_with(": 0x") || rest.starts_with(" 0x")
    };
    match value {
        "nil" => Some("nil"),
        _ => kinds.into_iter().find(is_shown),
    }
}

fn memory(script: &str, memory_bytes: usize) -> String {
    format!(
        "{script}: not enough memory: the script may use {} MB (memory_mb)",
        memory_bytes >> 20
    )
}

/// The first line of an error text. If it does not begin with a place in the script, the innermost
/// place in the traceback is put in front.
fn with_place(text: &str, traceback: &str, script: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    if place(line, script).is_some_and(|(at, _)| at == 0) {
        return line.to_owned();
    }
    // Places within the prelude mean nothing to the user.
    let line = match line.split_once(": ") {
        Some((head, rest)) if head.starts_with(OWN_CHUNKS) => rest,
        _ => line,
    };
    let valued = kind_of_value(line).map(|kind| {
        format!(
            "the script raised a {kind} as an error, which has no text; raise a string: \
             error(\"REASON\")"
        )
    });
    let line = valued.as_deref().unwrap_or(line);
    let lines = traceback.lines().skip(1);
    let has_name = |line: &str| {
        let rest = line.strip_prefix(script);
        rest.is_some_and(|rest| rest.starts_with(": "))
    };
    match lines.filter_map(|line| place(line, script)).next() {
        Some((_, place)) => format!("{place}: {line}"),
        None if has_name(line) => line.to_owned(),
        None => format!("{script}: {line}"),
    }
}

/// Finds `NAME:LINE` in a text; returns its offset and itself.
fn place<'a>(text: &'a str, script: &str) -> Option<(usize, &'a str)> {
    let at = text.find(script)?;
    let rest = text[at..].strip_prefix(script)?.strip_prefix(':')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let end = at + script.len() + 1 + digits;
    (digits > 0).then(|| (at, &text[at..end]))
}

/// Name of this crate's own Lua code in error messages.
pub(crate) const OWN_CHUNKS: &str = "(carina)";

/// LuaJIT's message when memory is used up.
const NO_MEMORY: &str = "not enough memory";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_begins_with_the_place_in_the_script() {
        let error = |text: &str| line_of(&Error::RuntimeError(text.to_owned()), "a.lua", 2 << 20);
        assert_eq!(
            error("a.lua:3: boom\nstack traceback:\n\t..."),
            "a.lua:3: boom"
        );
        assert_eq!(
            error(
                "(carina):9: no number\nstack traceback:\n\t(carina):9: in x\n\ta.lua:12: in push"
            ),
            "a.lua:12: no number"
        );
        assert_eq!(error("boom"), "a.lua: boom");
        assert_eq!(error("a.lua: boom"), "a.lua: boom");
        let no_text = |kind: &str| {
            format!(
                "the script raised a {kind} as an error, which has no text; raise a string: \
                 error(\"REASON\")"
            )
        };
        for text in ["<table 0x7f55d0c8>", "table: 0x7f55d0c8"] {
            assert_eq!(error(text), format!("a.lua: {}", no_text("table")));
        }
        let text = "nil\nstack traceback:\n\t[C]: in 'error'\n\ta.lua:2: in main chunk";
        assert_eq!(error(text), format!("a.lua:2: {}", no_text("nil")));
        assert_eq!(error("table: full"), "a.lua: table: full");
        assert_eq!(
            error("not enough memory"),
            "a.lua: not enough memory: the script may use 2 MB (memory_mb)"
        );
    }
}
