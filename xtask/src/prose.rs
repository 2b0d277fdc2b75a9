//! Prose and names that a reader would have to solve, and lines too wide to read.

use crate::source::Source;

/// A rule of prose and names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The name of a test is a claim of under [`TEST_NAME_MAX`] characters.
    TestName,
    /// Markdown wraps at [`COLUMNS`].
    Columns,
    /// Comments, pages and names of tests are plain: none of [`RIDDLES`].
    Riddle,
}

/// All lines of a file that break one of the rules.
pub(crate) fn breaches(source: &Source) -> Vec<(Rule, usize, String)> {
    let mut found = Vec::new();
    match source.extension() {
        "rs" => {
            test_names(source, &mut found);
            comments(source, &mut found);
        }
        "md" if source.path.as_os_str() != OLD_NAMES => page(source, &mut found),
        _ => {}
    }
    found
}

/// Lists what had other names once, and so has to use these.
const OLD_NAMES: &str = "CHANGELOG.md";

const TEST_NAME_MAX: usize = 60;
const COLUMNS: usize = 100;

/// What a reader would have to solve, and what to write instead.
const RIDDLES: [(&str, &str); 27] = [
    ("whoever", "name the actor"),
    ("whomever", "name the actor"),
    ("nobody", "name what is absent: no application, no member"),
    ("somebody", "name the actor"),
    ("is none", "there is no …, or: is invalid"),
    ("are none", "there are no …, or: are invalid"),
    ("comes to nothing", "fails, or: has no effect"),
    ("came to nothing", "failed, or: had no effect"),
    ("became of", "the outcome of"),
    ("becomes of", "the outcome of"),
    ("become of", "the outcome of"),
    ("has its turn", "is deferred until …, or: runs next"),
    ("have their turn", "are deferred until …, or: run next"),
    ("is told", "is notified, receives"),
    ("are told", "are notified, receive"),
    ("be told", "be notified, receive"),
    ("been told", "been notified, received"),
    ("was told", "was notified, received"),
    ("were told", "were notified, received"),
    ("namesake", "name conflict"),
    ("namesakes", "name conflict"),
    ("rival", "conflicting incarnation"),
    ("asking side", "initiator"),
    ("answering side", "responder"),
    ("parting", "detaching"),
    ("is no name", "is not well formed"),
    ("the paper", "its title, authors and figure"),
];

fn riddles(text: &str, line: usize, found: &mut Vec<(Rule, usize, String)>) {
    let text = text.to_lowercase();
    for (riddle, instead) in RIDDLES {
        if has_words(&text, riddle) {
            let what = format!("\"{riddle}\": {instead}");
            found.push((Rule::Riddle, line, what));
        }
    }
}

/// Whether `words` stand in `text` and are no part of other words.
fn has_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        is_edge(before) && is_edge(after)
    })
}

fn comments(source: &Source, found: &mut Vec<(Rule, usize, String)>) {
    for (index, line) in source.text.lines().enumerate() {
        // An address is no comment.
        let comment = line
            .match_indices("//")
            .find(|(at, _)| !line[..*at].ends_with(':'));
        if let Some((at, _)) = comment {
            riddles(&line[at..], index + 1, found);
        }
    }
}

fn test_names(source: &Source, found: &mut Vec<(Rule, usize, String)>) {
    let mut is_test = false;
    for (index, line) in source.text.lines().enumerate() {
        let line = line.trim();
        is_test |= line == "#[test]";
        let Some(name) = line
            .strip_prefix("fn ")
            .and_then(|rest| rest.split(['(', '<']).next())
            .filter(|_| is_test)
        else {
            continue;
        };
        is_test = false;
        let length = name.chars().count();
        if length >= TEST_NAME_MAX {
            let what = format!("{name}: {length} characters; must be under {TEST_NAME_MAX}");
            found.push((Rule::TestName, index + 1, what));
        }
        riddles(&name.replace('_', " "), index + 1, found);
    }
}

fn page(source: &Source, found: &mut Vec<(Rule, usize, String)>) {
    let mut is_code = false;
    for (index, line) in source.text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        let columns = line.chars().count();
        // A row of a table is one line, and so is a single word, as an address is.
        let words = line.trim_start_matches(['-', '*', '>', ' ']);
        let is_whole = words.starts_with('|') || !words.contains(' ');
        if columns > COLUMNS && !is_whole {
            let what = format!("{columns} columns; must be at most {COLUMNS}");
            found.push((Rule::Columns, index + 1, what));
        }
        riddles(line, index + 1, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(Rule, usize)> {
        let source = Source {
            path: path.into(),
            text: text.into(),
        };
        let found = breaches(&source);
        found
            .into_iter()
            .map(|(rule, line, _)| (rule, line))
            .collect()
    }

    #[test]
    fn long_names_count_for_tests_only() {
        let name = "a".repeat(TEST_NAME_MAX);
        let short = &name[1..];
        let text = format!("#[test]\n#[ignore]\nfn {name}() {{}}\nfn b{name}() {{}}\n");
        assert_eq!(found("a.rs", &text), [(Rule::TestName, 3)]);
        assert_eq!(found("a.rs", &format!("#[test]\nfn {short}() {{}}\n")), []);
    }

    #[test]
    fn riddles_are_found_in_comments_pages_and_test_names() {
        let text = format!(
            "/// {0} asks.\nlet {1} = \"{0}\"; // the {0}s and the hoe\n#[test]\nfn a_{0}_b() \
             {{}}\n",
            RIDDLES[0].0, RIDDLES[2].0
        );
        assert_eq!(found("a.rs", &text), [(Rule::Riddle, 4), (Rule::Riddle, 1)]);
        assert_eq!(found("a.md", "None: It Is None.\n"), [(Rule::Riddle, 1)]);
        assert_eq!(found("CHANGELOG.md", "`namesakes`\n"), []);
    }

    #[test]
    fn wide_lines_are_text_not_tables_code_or_addresses() {
        let wide = "a b".repeat(40);
        let address = "x".repeat(120);
        let page = format!("```\n{wide}\n```\n| {wide} |\n- {address}\n{wide}\n");
        assert_eq!(found("a.md", &page), [(Rule::Columns, 6)]);
    }
}
