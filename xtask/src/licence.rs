//! SPDX licence expressions against the list of licences that the project takes.

/// Tells whether an expression can be satisfied with allowed licences alone.
///
/// `OR` and the old `/` need one side, `AND` both, and `WITH` adds an exception to a licence.
pub(crate) fn is_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &tokens[..];
    let allowed = either(&mut rest);
    allowed == Some(true) && rest.is_empty()
}

fn either(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = both(rest)?;
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        allowed |= both(rest)?;
    }
    Some(allowed)
}

fn both(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(rest)?;
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        allowed &= one(rest)?;
    }
    Some(allowed)
}

fn one(rest: &mut &[&str]) -> Option<bool> {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let allowed = either(rest)?;
            let [")", tail @ ..] = *rest else { return None };
            *rest = tail;
            Some(allowed)
        }
        [licence, "WITH", exception, tail @ ..] => {
            *rest = tail;
            Some(ALLOWED.contains(licence) && EXCEPTIONS.contains(exception))
        }
        [licence, tail @ ..] => {
            *rest = tail;
            Some(ALLOWED.contains(licence))
        }
        [] => None,
    }
}

const ALLOWED: [&str; 11] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "0BSD",
    "Zlib",
    "BSL-1.0",
    "CC0-1.0",
    "Unicode-3.0",
];
const EXCEPTIONS: [&str; 1] = ["LLVM-exception"];

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn choices_need_one_allowed_side_and_conjunctions_both() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "GPL-2.0 WITH LLVM-exception",
            "(MIT",
            "MIT MIT",
            "EUPL-1.2 OR WTFPL",
        ] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }
}
