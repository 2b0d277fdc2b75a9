//! Reduces a failing scenario to few members, faults and calls that fail in the same way.
//!
//! It leaves out halves, quarters and so on down to single elements, and keeps each reduction that
//! still fails with the same words. It repeats this until a whole pass finds nothing to leave out,
//! or until the caller's time is over.

use std::collections::BTreeSet;

use super::Scenario;
use super::selection::{Numbers, Selection};

/// The smallest scenario that was found to fail in the same way.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest failing scenario that was found.
    pub scenario: Scenario,
    /// The failure of that scenario.
    pub failure: String,
    /// Number of smaller scenarios that were run.
    pub runs: usize,
}

/// Reduces a scenario that fails with `failure`. `fails` runs a scenario and returns its failure,
/// or `None`. `goes_on` is called before each run; false stops the search.
pub fn shrink(
    scenario: &Scenario,
    failure: &str,
    fails: impl FnMut(&Scenario) -> Option<String>,
    goes_on: impl FnMut(&Shrunk) -> bool,
) -> Shrunk {
    let kind = kind_of(failure);
    let mut search = Search {
        best: Shrunk {
            scenario: scenario.clone(),
            failure: failure.to_owned(),
            runs: 0,
        },
        kind,
        fails,
        goes_on,
    };
    while search.pass() {}
    search.best
}

/// The kinds of elements that can be left out.
#[derive(Clone, Copy, Debug)]
enum Part {
    Faults,
    Calls,
    Members,
}

impl Part {
    fn of(self, selection: &mut Selection) -> &mut Numbers {
        match self {
            Part::Faults => &mut selection.faults,
            Part::Calls => &mut selection.calls,
            Part::Members => &mut selection.members,
        }
    }
}

struct Search<F, G> {
    best: Shrunk,
    kind: Vec<String>,
    fails: F,
    goes_on: G,
}

impl<F, G> Search<F, G>
where
    F: FnMut(&Scenario) -> Option<String>,
    G: FnMut(&Shrunk) -> bool,
{
    /// Makes one pass. Returns false if it found nothing to leave out, or has to stop.
    fn pass(&mut self) -> bool {
        let before = self.best.scenario.kept.clone();
        for part in [Part::Faults, Part::Calls, Part::Members] {
            let mut size = part.of(&mut self.best.scenario.kept).len();
            while size > 0 {
                if !self.leave_out(part, size) {
                    return false;
                }
                size /= 2;
            }
        }
        self.best.scenario.kept != before
    }

    /// Tries to leave out each group of `size` elements. Returns false if it has to stop.
    fn leave_out(&mut self, part: Part, size: usize) -> bool {
        let all: Vec<usize> = {
            let numbers = part.of(&mut self.best.scenario.kept);
            numbers.0.iter().rev().copied().collect()
        };
        for some in all.chunks(size) {
            let some: BTreeSet<usize> = some.iter().copied().collect();
            let mut kept = self.best.scenario.kept.clone();
            part.of(&mut kept).0.retain(|number| !some.contains(number));
            let Ok(smaller) = self.best.scenario.keep(kept) else {
                continue;
            };
            if !(self.goes_on)(&self.best) {
                return false;
            }
            self.best.runs += 1;
            if let Some(failure) = (self.fails)(&smaller)
                && kind_of(&failure) == self.kind
            {
                (self.best.scenario, self.best.failure) = (smaller, failure);
            }
        }
        true
    }
}

/// The words of a failure without the parts that differ from run to run: its time, names with
/// numbers, and values in brackets.
fn kind_of(failure: &str) -> Vec<String> {
    let line = failure.lines().next().unwrap_or_default();
    let line = match line
        .strip_prefix("at ")
        .and_then(|rest| rest.split_once(": "))
    {
        Some((_, rest)) => rest,
        None => line,
    };
    let plain = line.split(['[', '{', '(', ';']).next().unwrap_or_default();
    let words = plain.split_whitespace();
    let words = words.filter(|word| !word.contains(|letter: char| letter.is_ascii_digit()));
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Overrides;
    use super::*;

    #[test]
    fn failures_are_compared_by_their_words() {
        let kind = |text: &str| kind_of(text).join(" ");
        let first = "at 494.500000 s: session 8: one end does not know; [Some(1)] (1 in all)";
        assert_eq!(kind(first), "session one end does not know");
        assert_eq!(
            kind(first),
            kind("at 3.1 s: session 12: one end does not know; [None]")
        );
        let second = "at 1.0 s: m7 sees other members than there are: missing [\"m8\"]\nstate";
        assert_eq!(kind(second), "sees other members than there are: missing");
    }

    /// Fails if members 0 and 2, the first fault and call 1 are kept.
    fn fails(scenario: &Scenario) -> Option<String> {
        let kept = &scenario.kept;
        let is_bad = [0, 2].iter().all(|at| kept.members.has(*at))
            && kept.faults.has(0)
            && kept.calls.has(1);
        is_bad.then(|| format!("at 5.0 s: m2 fails with {} members", kept.members.len()))
    }

    fn scenario() -> Scenario {
        let faulty = |seed: &u64| {
            let scenario = Scenario::new(*seed, Overrides::default());
            scenario.faults.len() > 3 && scenario.calls > 3
        };
        let seed = (0..).find(faulty).expect("a seed with faults");
        let mut scenario = Scenario::new(seed, Overrides::default());
        scenario.members = 8;
        scenario.edges = (1..8).map(|at| [at - 1, at]).collect();
        let (faults, calls) = (scenario.faults.len(), scenario.calls);
        scenario.kept = Selection::all(8, faults, calls);
        scenario
    }

    #[test]
    fn only_what_a_failure_needs_is_left() {
        let scenario = scenario();
        let failure = fails(&scenario).expect("a failure");
        let shrunk = shrink(&scenario, &failure, fails, |_| true);
        let kept = &shrunk.scenario.kept;
        // Member 1 is kept because it is on the path from 0 to 2.
        let texts = [&kept.members, &kept.faults, &kept.calls].map(ToString::to_string);
        assert_eq!(texts, ["0-2", "0", "1"]);
        assert_eq!(shrunk.failure, "at 5.0 s: m2 fails with 3 members");
        assert!((10..100).contains(&shrunk.runs), "{} runs", shrunk.runs);
    }

    #[test]
    fn another_failure_is_not_followed_and_time_is_kept() {
        let scenario = scenario();
        let failure = fails(&scenario).expect("a failure");
        let other = |_: &Scenario| Some("at 6.0 s: something else".to_owned());
        let shrunk = shrink(&scenario, &failure, other, |_| true);
        assert_eq!(shrunk.scenario.kept, scenario.kept);
        assert_eq!(shrunk.failure, failure);
        let shrunk = shrink(&scenario, &failure, fails, |so_far| so_far.runs < 3);
        assert_eq!(shrunk.runs, 3);
    }
}
