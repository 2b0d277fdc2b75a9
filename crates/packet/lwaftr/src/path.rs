//! Paths to parts of a configuration, in the syntax of `snabb config`:
//! `/softwire-config/binding-table/softwire[ipv4=192.0.2.1][psid=5]/b4-ipv6`.

use std::fmt;
use std::str::FromStr;

/// A path. Without steps it names the whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The steps, from the outermost container inwards.
    pub steps: Vec<Step>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the container, list or leaf.
    pub name: String,
    /// Keys of a list entry: names of leaves, with their values.
    pub keys: Vec<(String, String)>,
    /// Which of the list entries that match `keys` the step selects, counted from 1; `None` selects
    /// all entries that match.
    pub position: Option<usize>,
}

/// Why a text is not a valid path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path {text:?}: {expected} is expected at character {at}")]
pub struct PathError {
    /// The text that is not a valid path.
    pub text: String,
    /// Position of the faulty character, from 1.
    pub at: usize,
    /// What a valid path has at that place, as text.
    pub expected: &'static str,
}

impl Path {
    /// The names of all steps.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.steps.iter().map(|step| step.name.as_str()).collect()
    }
}

impl Step {
    /// The value of the key `name`, if the step has it.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&str> {
        let found = self.keys.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Path, PathError> {
        let mut scan = Scan { text, at: 0 };
        let mut steps = Vec::new();
        scan.take('/');
        while scan.at < text.len() {
            steps.push(scan.step()?);
            if !scan.take('/') && scan.at < text.len() {
                return Err(scan.wrong("/ or ["));
            }
        }
        Ok(Path { steps })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            write!(f, "/{}", step.name)?;
            for (key, value) in &step.keys {
                // A quoted value cannot contain its own quote, so the other kind of quote always
                // works.
                match (is_plain(value), value.contains('\'')) {
                    (true, _) => write!(f, "[{key}={value}]")?,
                    (false, true) => write!(f, "[{key}=\"{value}\"]")?,
                    (false, false) => write!(f, "[{key}='{value}']")?,
                }
            }
            if let Some(position) = step.position {
                write!(f, "[position()={position}]")?;
            }
        }
        if self.steps.is_empty() {
            f.write_str("/")
        } else {
            Ok(())
        }
    }
}

/// Whether a value can be written without quotes.
fn is_plain(value: &str) -> bool {
    !value.contains(']') && !value.starts_with(['"', '\''])
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl Scan<'_> {
    fn wrong(&self, expected: &'static str) -> PathError {
        PathError {
            text: self.text.to_owned(),
            at: self.text[..self.at].chars().count() + 1,
            expected,
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_next = self.text[self.at..].starts_with(wanted);
        self.at += if is_next { wanted.len_utf8() } else { 0 };
        is_next
    }

    fn while_in(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let rest = &self.text[self.at..];
        let length = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        self.at += length;
        rest[..length].to_owned()
    }

    fn step(&mut self) -> Result<Step, PathError> {
        let name =
            self.while_in(|letter| letter.is_ascii_alphanumeric() || "-_.:".contains(letter));
        // A prefix with the model's name is allowed, and ignored.
        let name = name.rsplit(':').next().unwrap_or_default();
        if name.is_empty() {
            return Err(self.wrong("a name"));
        }
        let mut step = Step {
            name: name.to_owned(),
            keys: Vec::new(),
            position: None,
        };
        while self.take('[') {
            let key = self.while_in(|letter| !"=[]/".contains(letter));
            if key.trim().is_empty() || !self.take('=') {
                return Err(self.wrong("KEY=VALUE"));
            }
            self.while_in(char::is_whitespace);
            let quote = ['"', '\''].into_iter().find(|quote| self.take(*quote));
            let value = match quote {
                Some(quote) => self.while_in(|letter| letter != quote),
                None => self.while_in(|letter| letter != ']'),
            };
            if quote.is_some_and(|quote| !self.take(quote)) {
                return Err(self.wrong("the end of a quoted value"));
            }
            if !self.take(']') {
                return Err(self.wrong("]"));
            }
            match key.trim() {
                "position()" => {
                    let position = value.trim().parse().ok().filter(|number| *number > 0);
                    step.position =
                        Some(position.ok_or_else(|| self.wrong("a number, 1 or more,"))?);
                }
                key => step.keys.push((key.to_owned(), value.trim().to_owned())),
            }
        }
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_steps_keys_and_positions() {
        let text = "/softwire-config/binding-table/softwire[ipv4=192.0.2.1][psid='5']/b4-ipv6";
        let path: Path = text.parse().unwrap();
        assert_eq!(
            path.names(),
            ["softwire-config", "binding-table", "softwire", "b4-ipv6"]
        );
        let softwire = &path.steps[2];
        assert_eq!(
            (softwire.key("ipv4"), softwire.key("psid")),
            (Some("192.0.2.1"), Some("5"))
        );
        assert_eq!(path.to_string(), text.replace('\'', ""));
        let path: Path = "a:b/c[position()=2]/".parse().unwrap();
        assert_eq!(
            (path.names(), path.steps[1].position),
            (vec!["b", "c"], Some(2))
        );
        assert_eq!("/".parse::<Path>().unwrap(), Path::default());
        assert_eq!("".parse::<Path>().unwrap().to_string(), "/");
    }

    #[test]
    fn wrong_paths_are_refused_with_their_place() {
        for (text, at, expected) in [
            ("//", 2, "a name"),
            ("a[b", 4, "KEY=VALUE"),
            ("a[b=c", 6, "]"),
            ("a[b='c]", 8, "the end of a quoted value"),
            ("a[b=c]d", 7, "/ or ["),
            ("a[position()=0]", 16, "a number, 1 or more,"),
        ] {
            let error = text.parse::<Path>().unwrap_err();
            assert_eq!((error.at, error.expected), (at, expected), "{text}");
        }
    }
}
