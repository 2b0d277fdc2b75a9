//! What the tests of one program came to, read from what libtest prints.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Results of the tests of one program, over all attempts to run them.
#[derive(Debug, Default)]
pub struct Report {
    counts: Counts,
    results: BTreeMap<String, Outcome>,
    /// What a person reads: the output without what tests that passed have printed.
    text: String,
    causes: Vec<String>,
}

/// Numbers of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// They ran, and what they claim holds.
    pub passed: u64,
    /// They found a fault, hung, or left something behind.
    pub failed: u64,
    /// They could not run here, or only in part: each has printed `SKIP: REASON`.
    pub skipped: u64,
}

/// What became known of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    Ignored,
    /// Another test starts it as a process of its own: it counts with that one.
    Part,
}

impl Counts {
    /// Adds the numbers of other tests.
    pub fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Reads a line of [`Report::line`].
    pub fn of_line(line: &str) -> Option<Counts> {
        let mut numbers = line.strip_prefix(LINE)?.split(", ");
        let mut number = |unit: &str| numbers.next()?.strip_suffix(unit)?.parse().ok();
        Some(Counts {
            passed: number(" passed")?,
            failed: number(" failed")?,
            skipped: number(" skipped")?,
        })
    }

    /// Reads libtest's line `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
    pub fn of_summary(line: &str) -> Option<Counts> {
        let result = line.strip_prefix("test result: ")?;
        let count = |unit: &str| {
            let (before, _) = result.split_once(unit)?;
            let number = before.rsplit([' ', '.']).find(|word| !word.is_empty())?;
            number.parse().ok()
        };
        Some(Counts {
            passed: count(" passed;")?,
            failed: count(" failed;")?,
            skipped: count(" ignored;")?,
        })
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl Report {
    /// Adds the output of one attempt, whole or up to where it was ended.
    pub fn read(&mut self, output: &str) {
        let mut own: BTreeMap<String, Outcome> = BTreeMap::new();
        own.extend(results(output));
        let mut summary = None;
        let mut passed_output = None;
        let mut skipped = BTreeMap::new();
        for line in output.lines() {
            if line == "successes:" {
                passed_output = Some(String::new());
                continue;
            }
            if line == "failures:" || line.starts_with("test result: ") {
                passed_output = None;
            }
            summary = Counts::of_summary(line).or(summary);
            match &mut passed_output {
                None => writeln!(self.text, "{line}").expect("a string takes all"),
                Some(test) => match section(line) {
                    Some(name) => name.clone_into(test),
                    None if line.starts_with("SKIP") && !test.is_empty() => {
                        skipped
                            .entry(test.clone())
                            .or_insert_with(|| line.to_owned());
                    }
                    None => {}
                },
            }
        }
        for (test, reason) in &skipped {
            writeln!(self.text, "test {test}: {reason}").expect("a string takes all");
        }
        // A line may be torn by what a process of the test wrote; libtest's sum is not.
        let mut counts = summary.unwrap_or_else(|| counted(&own));
        let skipped = u64::try_from(skipped.len()).unwrap_or(u64::MAX);
        counts.passed = counts.passed.saturating_sub(skipped);
        if summary.is_some() {
            counts.skipped = counts.skipped.saturating_sub(number(&own, Outcome::Part));
        }
        counts.skipped += skipped;
        self.counts.add(counts);
        self.results.extend(own);
    }

    /// Counts one failure that no test has reported.
    pub fn fails(&mut self, cause: String) {
        self.counts.failed += 1;
        self.causes.push(cause);
    }

    /// Whether an attempt has reported the result of the test.
    pub fn has_result(&self, test: &str) -> bool {
        self.results.contains_key(test)
    }

    /// Whether anything failed.
    pub fn has_failures(&self) -> bool {
        self.counts.failed > 0
    }

    /// Output and causes, for a person.
    pub fn shown(&self) -> String {
        let mut text = self.text.clone();
        for cause in &self.causes {
            writeln!(text, "FAILED: {cause}").expect("a string takes all");
        }
        text
    }

    /// The numbers, for [`Counts::of_line`].
    pub fn line(&self) -> String {
        format!("{LINE}{}", self.counts)
    }
}

/// Tests with a result in libtest's output.
pub fn results(output: &str) -> Vec<(String, Outcome)> {
    let result = |line: &str| {
        let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let outcome = match outcome.split(',').next()? {
            "ok" => Outcome::Passed,
            "FAILED" => Outcome::Failed,
            "ignored" if outcome.ends_with(PART) => Outcome::Part,
            "ignored" => Outcome::Ignored,
            _ => return None,
        };
        // A test that has to panic is listed as `NAME - should panic`.
        let name = name.split(" - ").next().unwrap_or(name);
        Some((name.to_owned(), outcome))
    };
    output.lines().filter_map(result).collect()
}

fn counted(results: &BTreeMap<String, Outcome>) -> Counts {
    Counts {
        passed: number(results, Outcome::Passed),
        failed: number(results, Outcome::Failed),
        skipped: number(results, Outcome::Ignored),
    }
}

fn number(results: &BTreeMap<String, Outcome>, wanted: Outcome) -> u64 {
    let found = results.values().filter(|outcome| **outcome == wanted);
    u64::try_from(found.count()).unwrap_or(u64::MAX)
}

/// The test whose output follows a line such as `---- NAME stdout ----`.
fn section(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// The reason of `#[ignore]` of a test that another one starts.
const PART: &str = "part of another test";

const LINE: &str = "tests of this program: ";

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 6 tests
test a ... ok
test b::c ... FAILED
test d ... ignored, takes an hour
test g ... ignored, part of another test
test e ... ok
test f - should panic ... ok

successes:

---- a stdout ----
SKIP: no tshark here
---- e stdout ----
all is well: SKIP

successes:
    a
    e
    f

failures:

---- b::c stdout ----
thread 'b::c' panicked

failures:
    b::c

test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out
";

    #[test]
    fn tests_that_print_skip_are_skipped() {
        let mut report = Report::default();
        report.read(OUTPUT);
        let counts = Counts::of_line(&report.line()).unwrap();
        assert_eq!(counts.to_string(), "2 passed, 1 failed, 2 skipped");
        let shown = report.shown();
        assert!(shown.contains("test a: SKIP: no tshark here"), "{shown}");
        assert!(shown.contains("thread 'b::c' panicked"), "{shown}");
        assert!(!shown.contains("all is well"), "{shown}");
        assert!(report.has_result("f") && !report.has_result("h"));
    }

    #[test]
    fn output_that_ends_early_counts_by_its_lines() {
        let mut report = Report::default();
        report.read("test a ... ok\ntest b ... FAILED\ntest c ... ");
        report.fails("test c hung".to_owned());
        assert!(report.line().ends_with("1 passed, 2 failed, 0 skipped"));
        assert!(report.shown().ends_with("FAILED: test c hung\n"));
    }

    #[test]
    fn other_lines_are_no_counts() {
        for line in ["test result: unheard of", "3 passed", ""] {
            assert_eq!(Counts::of_line(line), None);
            assert_eq!(Counts::of_summary(line), None);
        }
    }
}
