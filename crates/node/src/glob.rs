//! Patterns with `*` (any text) and `?` (any character), in time linear in their product.

/// A pattern over names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Vec<char>);

impl Glob {
    /// A pattern; every text is one.
    pub fn new(pattern: &str) -> Self {
        Self(pattern.chars().collect())
    }

    /// Whether all of `text` fits the pattern.
    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut seen) = (0, 0);
        // Where to resume when what follows the last `*` does not fit: it then takes one
        // character more.
        let mut resume = None;
        while seen < text.len() {
            match self.0.get(at) {
                Some('*') => {
                    resume = Some((at, seen));
                    at += 1;
                }
                Some(&c) if c == '?' || c == text[seen] => {
                    at += 1;
                    seen += 1;
                }
                _ => match resume {
                    Some((star, taken)) => {
                        resume = Some((star, taken + 1));
                        at = star + 1;
                        seen = taken + 1;
                    }
                    None => return false,
                },
            }
        }
        self.0[at..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_texts_only() {
        let fits = |pattern: &str, text: &str| Glob::new(pattern).matches(text);
        for (pattern, text) in [
            ("*", ""),
            ("a*c", "abbc"),
            ("a?c", "aéc"),
            ("*.vm", "a.b.vm"),
            ("", ""),
            ("a**", "a"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("a*c", "abcd"),
            ("?", ""),
            ("a?c", "ac"),
            ("*x", "xy"),
        ] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = Glob::new(&"a*".repeat(100));
        assert!(!pattern.matches(&format!("{}b", "ba".repeat(120))));
    }
}
