//! Code of pages that is a part of a file which tests run.

use std::path::Path;

use crate::source::Source;

/// Returns the line and the error of each block of code that follows `<!-- file: PATH -->` and is
/// not in that file, line by line. `PATH` begins at the root of the repository.
pub(crate) fn breaches(page: &Source, root: &Path) -> Vec<(usize, String)> {
    let lines: Vec<&str> = page.text.lines().collect();
    let mut breaches = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(path) = line
            .strip_prefix("<!-- file: ")
            .and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let block = lines[index + 1..].iter().skip(1);
        let block: Vec<&str> = block.copied().take_while(|line| *line != "```").collect();
        let opens = lines.get(index + 1);
        if block.is_empty() || !opens.is_some_and(|line| line.starts_with("```")) {
            let wrong = format!("no block of code follows on the line after the one for {path}");
            breaches.push((index + 1, wrong));
            continue;
        }
        match std::fs::read_to_string(root.join(path)) {
            Ok(file) if file.contains(&format!("{}\n", block.join("\n"))) => {}
            Ok(_) => breaches.push((index + 1, format!("the block is not in {path}; copy it"))),
            Err(error) => breaches.push((index + 1, format!("{path}: {error}"))),
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(block: &str) -> usize {
        let page = Source {
            path: "docs/a.md".into(),
            text: format!("# A\n\n<!-- file: Cargo.toml -->\n{block}\n"),
        };
        breaches(&page, Path::new(env!("CARGO_MANIFEST_DIR"))).len()
    }

    #[test]
    fn block_that_is_in_its_file_is_right() {
        assert_eq!(found("```toml\n[lints]\nworkspace = true\n```"), 0);
    }

    #[test]
    fn block_that_differs_from_its_file_is_a_breach() {
        assert_eq!(found("```toml\n[lints]\nworkspace = false\n```"), 1);
        assert_eq!(found("[lints]"), 1);
    }
}
