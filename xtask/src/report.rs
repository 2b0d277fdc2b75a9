//! What the tests of one program came to, read from what libtest prints.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Results of the tests of one program, over all attempts to run them.
#[derive(Debug, Default)]
pub(crate) struct Report {
    counts: Counts,
    results: BTreeMap<String, Outcome>,
    /// What a person reads: the output without what tests that passed have printed.
    text: String,
    causes: Vec<String>,
    /// The tests that failed, with what they printed.
    failed: BTreeMap<String, String>,
    /// The tests that were skipped, with the line that says why.
    skipped: BTreeMap<String, String>,
}

/// What the tests of a program came to: the last line that its supervisor prints, as JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// How many passed, failed and were skipped.
    pub counts: Counts,
    /// The tests that failed, with what they printed.
    pub failed: BTreeMap<String, String>,
    /// The tests that were skipped, with the line that says why.
    pub skipped: BTreeMap<String, String>,
    /// Failures that no test has reported.
    pub causes: Vec<String>,
}

/// Numbers of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// They ran, and what they claim holds.
    pub passed: u64,
    /// They found a fault, hung, or left something behind.
    pub failed: u64,
    /// They could not run here, or only in part: each has printed `SKIP: REASON`.
    pub skipped: u64,
}

/// What became known of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Ignored,
    /// Another test starts it as a process of its own: it counts with that one.
    Part,
}

impl Counts {
    /// Adds the numbers of other tests.
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Reads libtest's line `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
    pub(crate) fn of_summary(line: &str) -> Option<Counts> {
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

impl Sum {
    /// Reads the line that [`Sum::line`] makes; `None` when it is another line.
    pub(crate) fn of_line(line: &str) -> Option<Sum> {
        let value: Value = serde_json::from_str(line).ok()?;
        let texts = |key: &str| {
            let texts = value[key].as_object()?.iter();
            texts
                .map(|(test, text)| Some((test.clone(), text.as_str()?.to_owned())))
                .collect::<Option<BTreeMap<_, _>>>()
        };
        let causes = value["causes"].as_array()?.iter();
        Some(Sum {
            counts: Counts {
                passed: value["passed"].as_u64()?,
                failed: value["failed"].as_u64()?,
                skipped: value["skipped"].as_u64()?,
            },
            failed: texts("failed_tests")?,
            skipped: texts("skipped_tests")?,
            causes: causes
                .map(|cause| cause.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
        })
    }

    /// One line of JSON.
    pub(crate) fn line(&self) -> String {
        let object = |texts: &BTreeMap<String, String>| {
            let entries = texts.iter();
            Value::Object(
                entries
                    .map(|(test, text)| (test.clone(), json!(text)))
                    .collect::<Map<_, _>>(),
            )
        };
        json!({
            "passed": self.counts.passed,
            "failed": self.counts.failed,
            "skipped": self.counts.skipped,
            "failed_tests": object(&self.failed),
            "skipped_tests": object(&self.skipped),
            "causes": self.causes,
        })
        .to_string()
    }
}

impl Report {
    /// Adds the output of one attempt, whole or up to where it was ended.
    pub(crate) fn read(&mut self, output: &str) {
        let mut own: BTreeMap<String, Outcome> = BTreeMap::new();
        own.extend(results(output));
        let mut summary = None;
        let mut skipped = BTreeMap::new();
        let mut place = Place::Results;
        for line in output.lines() {
            match line {
                "successes:" => place = Place::Passed(String::new()),
                "failures:" => place = Place::Failed(String::new()),
                line if line.starts_with("test result: ") => place = Place::Results,
                _ => {}
            }
            summary = Counts::of_summary(line).or(summary);
            match &mut place {
                Place::Passed(test) => match section(line) {
                    Some(name) => name.clone_into(test),
                    None if line.starts_with("SKIP") && !test.is_empty() => {
                        skipped
                            .entry(test.clone())
                            .or_insert_with(|| line.to_owned());
                    }
                    None => {}
                },
                Place::Failed(test) => {
                    writeln!(self.text, "{line}").expect("a string takes all");
                    if let Some(name) = section(line) {
                        name.clone_into(test);
                        self.failed.entry(name.to_owned()).or_default();
                    } else if let Some(text) = self.failed.get_mut(test) {
                        writeln!(text, "{line}").expect("a string takes all");
                    }
                }
                Place::Results => writeln!(self.text, "{line}").expect("a string takes all"),
            }
        }
        for (test, outcome) in &own {
            if *outcome == Outcome::Failed {
                self.failed.entry(test.clone()).or_default();
            }
        }
        for (test, reason) in &skipped {
            writeln!(self.text, "test {test}: {reason}").expect("a string takes all");
        }
        self.skipped.extend(skipped.clone());
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
    pub(crate) fn fails(&mut self, cause: String) {
        self.counts.failed += 1;
        self.causes.push(cause);
    }

    /// Whether an attempt has reported the result of the test.
    pub(crate) fn has_result(&self, test: &str) -> bool {
        self.results.contains_key(test)
    }

    /// Whether anything failed.
    pub(crate) fn has_failures(&self) -> bool {
        self.counts.failed > 0
    }

    /// Output and causes, for a person.
    pub(crate) fn shown(&self) -> String {
        let mut text = self.text.clone();
        for cause in &self.causes {
            writeln!(text, "FAILED: {cause}").expect("a string takes all");
        }
        text
    }

    /// What the tests came to.
    pub(crate) fn into_sum(self) -> Sum {
        Sum {
            counts: self.counts,
            failed: self.failed,
            skipped: self.skipped,
            causes: self.causes,
        }
    }
}

/// Tests with a result in libtest's output.
pub(crate) fn results(output: &str) -> Vec<(String, Outcome)> {
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

/// The part of libtest's output that a line stands in. Under `failures:` the sections come first
/// and then, under a second such heading, the names alone.
enum Place {
    Results,
    /// Under `successes:`, with the test whose output it is.
    Passed(String),
    /// Under `failures:`, with the test whose output it is.
    Failed(String),
}

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
        assert_eq!(report.counts.to_string(), "2 passed, 1 failed, 2 skipped");
        let shown = report.shown();
        assert!(shown.contains("test a: SKIP: no tshark here"), "{shown}");
        assert!(shown.contains("thread 'b::c' panicked"), "{shown}");
        assert!(!shown.contains("all is well"), "{shown}");
        assert!(report.has_result("f") && !report.has_result("h"));
        let sum = report.into_sum();
        assert_eq!(sum.skipped["a"], "SKIP: no tshark here");
        assert_eq!(sum.failed["b::c"], "thread 'b::c' panicked\n\n");
        assert_eq!((sum.failed.len(), sum.skipped.len()), (1, 1));
        assert_eq!(Sum::of_line(&sum.line()), Some(sum));
    }

    #[test]
    fn output_that_ends_early_counts_by_its_lines() {
        let mut report = Report::default();
        report.read("test a ... ok\ntest b ... FAILED\ntest c ... ");
        report.fails("test c hung".to_owned());
        assert!(report.shown().ends_with("FAILED: test c hung\n"));
        let sum = report.into_sum();
        assert_eq!(sum.counts.to_string(), "1 passed, 2 failed, 0 skipped");
        assert_eq!(sum.failed.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(sum.causes, ["test c hung"]);
    }

    #[test]
    fn other_lines_are_no_counts() {
        for line in ["test result: unheard of", "3 passed", ""] {
            assert_eq!(Sum::of_line(line), None);
            assert_eq!(Counts::of_summary(line), None);
        }
    }
}
