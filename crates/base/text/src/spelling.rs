//! Suggestions for misspelt words.

/// Returns the entry of the list `among` that a misspelt word probably means. `None` if no entry is
/// similar enough.
#[must_use]
pub fn nearest<'a>(word: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let closest = among
        .into_iter()
        .map(|known| (strsim::levenshtein(word, known), known));
    let (far, known) = closest.min_by_key(|(far, _)| *far)?;
    // A word of which no character is left is no misspelling: any two short words are that close.
    let is_near = far <= 1 + word.chars().count() / 4;
    (is_near && far < word.chars().count().max(known.chars().count())).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_is_found_unless_it_is_far() {
        assert_eq!(nearest("sytem", ["system", "eth"]), Some("system"));
        assert_eq!(nearest("frobnicate", ["system", "eth"]), None);
        assert_eq!(nearest("bb", ["b"]), Some("b"));
        assert_eq!(nearest("c", ["a", "b"]), None);
    }
}
