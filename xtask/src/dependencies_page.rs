//! Compares the table of `docs/reference/dependencies.md` with what the crates depend on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The page, from the root of the repository.
pub(crate) const PAGE: &str = "docs/reference/dependencies.md";

/// The crates that use a library, without `carina-`; bindings by their directories.
#[derive(Debug, Default, PartialEq, Eq)]
struct Users {
    /// In the library or program itself, or in its build script.
    in_crates: BTreeSet<String>,
    /// In tests only.
    in_tests: BTreeSet<String>,
}

/// Returns one line for each library of other projects that has no row, each row whose users are
/// wrong, and each row that no crate uses. `metadata` is that of cargo, `page` the text.
pub(crate) fn breaches(metadata: &Value, page: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut rows = BTreeMap::new();
    for (line, name, users) in table(page) {
        if rows.insert(name, (line, users)).is_some() {
            breaches.push(format!("{PAGE}:{line}: {name} has a second row; keep one"));
        }
    }
    for (name, used) in &used(metadata) {
        let Some((line, users)) = rows.remove(name.as_str()) else {
            breaches.push(format!(
                "{PAGE}: {name} has no row; add: | {name} | {} | {} | why |",
                list(&used.in_crates),
                list(&used.in_tests)
            ));
            continue;
        };
        for (column, named, right) in [
            ("used by", &users.in_crates, &used.in_crates),
            ("tests of", &users.in_tests, &used.in_tests),
        ] {
            if named != right {
                breaches.push(format!(
                    "{PAGE}:{line}: {name}: `{column}` has `{}`; the crates say `{}`",
                    list(named),
                    list(right)
                ));
            }
        }
    }
    let unused = rows.into_iter();
    breaches.extend(unused.map(|(name, (line, _))| {
        format!("{PAGE}:{line}: no crate depends on {name}; remove the row")
    }));
    breaches
}

/// The libraries of other projects that packages of the workspace name in their `Cargo.toml`.
fn used(metadata: &Value) -> BTreeMap<String, Users> {
    let mut used: BTreeMap<String, Users> = BTreeMap::new();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    for package in packages.filter(|package| package["source"].is_null()) {
        let user = user(package);
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        // A package of the workspace has a path.
        for dependency in dependencies.filter(|dependency| dependency["path"].is_null()) {
            let users = used.entry(short(&dependency["name"])).or_default();
            match dependency["kind"].as_str() {
                Some("dev") => users.in_tests.insert(user.clone()),
                _ => users.in_crates.insert(user.clone()),
            };
        }
    }
    for users in used.values_mut() {
        let in_crates = &users.in_crates;
        users.in_tests.retain(|user| !in_crates.contains(user));
    }
    used
}

/// The rows of the table: line, library, users.
fn table(page: &str) -> impl Iterator<Item = (usize, &str, Users)> {
    let numbered = (1..).zip(page.lines());
    let from_header = numbered.skip_while(|(_, line)| *line != HEADER);
    let rows = from_header
        .skip(2)
        .take_while(|(_, line)| line.starts_with('|'));
    rows.map(|(number, line)| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let name = cells.next().unwrap_or_default();
        let mut names = || {
            let cell = cells.next().unwrap_or_default();
            let names = cell.split(", ").filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        let users = Users {
            in_crates: names(),
            in_tests: names(),
        };
        (number, name, users)
    })
}

/// The name of a package of this project in the table.
fn user(package: &Value) -> String {
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let binding = manifest
        .rsplit_once("/bindings/")
        .and_then(|(_, rest)| rest.strip_suffix("/Cargo.toml"));
    binding.map_or_else(
        || short(&package["name"]),
        |name| format!("bindings/{name}"),
    )
}

fn short(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    name.strip_prefix("carina-").unwrap_or(name).to_owned()
}

fn list(names: &BTreeSet<String>) -> String {
    names
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

const HEADER: &str = "| crate | used by | tests of | why |";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `carina-a` uses `serde` and, in tests, `proptest`; `carina-b` uses both and `carina-a`.
    fn metadata() -> Value {
        let normal = |name: &str| json!({"name": name, "kind": null});
        let test = |name: &str| json!({"name": name, "kind": "dev"});
        let own = json!({"name": "carina-a", "kind": null, "path": "/crates/a"});
        json!({"packages": [
            {"name": "carina-a", "source": null,
             "dependencies": [normal("serde"), test("proptest")]},
            {"name": "carina-b", "source": null,
             "dependencies": [own, normal("serde"), test("serde"), normal("proptest")]},
            {"name": "serde", "source": "registry", "dependencies": [normal("itoa")]},
        ]})
    }

    fn page(rows: &str) -> String {
        format!("# Dependencies\n\n{HEADER}\n|---|---|---|---|\n{rows}\n## Own code\n| x | y |\n")
    }

    #[test]
    fn binding_has_the_name_of_its_directory() {
        let metadata = json!({"packages": [{
            "name": "carina-b", "source": null, "manifest_path": "/c/bindings/b/Cargo.toml",
            "dependencies": [{"name": "serde", "kind": null}],
        }]});
        let page = page("| serde | bindings/b | | Because. |\n");
        assert_eq!(breaches(&metadata, &page), [""; 0]);
    }

    const SERDE: &str = "| serde | a, b | | Because. |\n";
    const PROPTEST: &str = "| proptest | b | a | Because. |\n";

    #[test]
    fn page_that_names_all_users_has_no_breach() {
        let page = page(&format!("{SERDE}{PROPTEST}"));
        assert_eq!(breaches(&metadata(), &page), [""; 0]);
    }

    #[test]
    fn library_without_a_row_is_a_breach_with_the_row() {
        assert_eq!(
            breaches(&metadata(), &page(SERDE)),
            [format!(
                "{PAGE}: proptest has no row; add: | proptest | b | a | why |"
            )]
        );
    }

    #[test]
    fn row_with_wrong_users_is_a_breach() {
        let wrong = "| serde | a, c | | Because. |\n| proptest | b | | Because. |\n";
        assert_eq!(
            breaches(&metadata(), &page(wrong)),
            [
                format!("{PAGE}:6: proptest: `tests of` has ``; the crates say `a`"),
                format!("{PAGE}:5: serde: `used by` has `a, c`; the crates say `a, b`"),
            ]
        );
    }

    #[test]
    fn row_that_no_crate_uses_is_a_breach_and_so_is_a_second() {
        let rows = format!("{SERDE}{PROPTEST}| slab | b | | Because. |\n{SERDE}");
        assert_eq!(
            breaches(&metadata(), &page(&rows)),
            [
                format!("{PAGE}:8: serde has a second row; keep one"),
                format!("{PAGE}:7: no crate depends on slab; remove the row"),
            ]
        );
    }
}
