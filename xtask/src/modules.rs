//! Cycles between the modules of a crate.
//!
//! A module depends on its sibling if anything in or below it names anything in or below the
//! sibling: in a `use`, or in a path that begins with `crate`, `self` or `super`. A name that a
//! parent only re-exports counts for the module that defines it. What a parent itself defines, and
//! everything under `#[cfg(test)]`, counts for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::rust::{Token, tokens};
use crate::source::Source;

/// Siblings each of which needs, directly or not, all the others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cycle {
    /// The crate's directory, and below it the module whose children these are, as in
    /// `crates/a` or `crates/a::b`.
    pub parent: String,
    /// The names of the siblings, in order.
    pub modules: Vec<String>,
    /// One line for each dependency within the cycle, with a place where it is.
    pub because: Vec<String>,
}

/// All cycles of all crates, in the order of their crates.
pub(crate) fn cycles(sources: &[Source]) -> Vec<Cycle> {
    let mut crates: BTreeMap<&str, Vec<(&Source, Vec<String>)>> = BTreeMap::new();
    for source in sources {
        let path = source.path.to_str().unwrap_or_default();
        let Some((crate_dir, file)) = path.split_once("/src/") else {
            continue;
        };
        if source.extension() == "rs" && !(file == "main.rs" && has_library(sources, crate_dir)) {
            crates
                .entry(crate_dir)
                .or_default()
                .push((source, module(file)));
        }
    }
    let graphs = crates
        .iter()
        .map(|(crate_dir, files)| Crate::read(crate_dir, files));
    graphs.flat_map(|graph| graph.cycles()).collect()
}

/// Where a binary has a library beside it, the library is the crate.
fn has_library(sources: &[Source], crate_dir: &str) -> bool {
    let library = Path::new(crate_dir).join("src/lib.rs");
    sources.iter().any(|source| source.path == library)
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`; the crate's root has no name.
fn module(file: &str) -> Vec<String> {
    let mut names: Vec<String> = file
        .trim_end_matches(".rs")
        .split('/')
        .map(String::from)
        .collect();
    let is_own = matches!(
        names.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    );
    if is_own {
        names.pop();
    }
    names
}

type Module = Vec<String>;

/// A path as it stands in a file.
struct Mention {
    from: Module,
    path: Vec<String>,
    place: String,
}

#[derive(Default)]
struct Crate {
    directory: String,
    modules: BTreeSet<Module>,
    tests: BTreeSet<Module>,
    /// What a module's `use` gives other names to, and where that is.
    imports: BTreeMap<(Module, String), Vec<String>>,
    /// What a module imports all of.
    globs: BTreeMap<Module, Vec<Vec<String>>>,
    /// What a module defines.
    items: BTreeSet<(Module, String)>,
    mentions: Vec<Mention>,
}

impl Crate {
    fn read(crate_dir: &str, files: &[(&Source, Module)]) -> Self {
        let mut read = Self {
            directory: crate_dir.to_owned(),
            ..Self::default()
        };
        for (source, module) in files {
            read.modules.insert(module.clone());
            let tokens = tokens(&source.text);
            let mut walk = Walk {
                into: &mut read,
                place: source.path.display().to_string(),
                tokens: &tokens,
                at: 0,
            };
            walk.block(module.clone());
        }
        read
    }

    fn cycles(&self) -> Vec<Cycle> {
        let mut needs: BTreeMap<&[String], BTreeMap<(&str, &str), &str>> = BTreeMap::new();
        let targets: Vec<Option<Module>> = self.mentions.iter().map(|m| self.target(m)).collect();
        for (mention, target) in self.mentions.iter().zip(&targets) {
            let Some(target) = target else { continue };
            let from = &mention.from;
            let shared = from.iter().zip(target).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(shared), target.get(shared)) {
                let siblings = needs.entry(&from[..shared]).or_default();
                siblings.entry((a, b)).or_insert(&mention.place);
            }
        }
        let of = |(parent, needs): (&&[String], &BTreeMap<(&str, &str), &str>)| {
            let path = std::iter::once(&self.directory).chain(parent.iter());
            let parent = path.map(String::as_str).collect::<Vec<_>>().join("::");
            let cycle = |modules: Vec<&str>| {
                let within = needs
                    .iter()
                    .filter(|((a, b), _)| modules.contains(a) && modules.contains(b));
                Cycle {
                    parent: parent.clone(),
                    because: within
                        .map(|((a, b), place)| format!("{a} needs {b} at {place}"))
                        .collect(),
                    modules: modules.iter().map(|name| (*name).to_owned()).collect(),
                }
            };
            let edges: BTreeSet<(&str, &str)> = needs.keys().copied().collect();
            components(&edges)
                .into_iter()
                .map(cycle)
                .collect::<Vec<_>>()
        };
        needs.iter().flat_map(of).collect()
    }

    /// The module that defines what a mention names, if it is one of this crate's and no test's.
    fn target(&self, mention: &Mention) -> Option<Module> {
        if self.is_test(&mention.from) {
            return None;
        }
        let found = self.resolve(&mention.from, &mention.path, 0)?;
        (!self.is_test(&found)).then_some(found)
    }

    fn is_test(&self, module: &Module) -> bool {
        (1..=module.len()).any(|length| self.tests.contains(&module[..length]))
    }

    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        // Imports that lead back to themselves are not valid Rust, but this must end all the same.
        if depth > DEPTH_MAX {
            return None;
        }
        let mut at = from.clone();
        let mut rest = path;
        match rest.first().map(String::as_str) {
            Some("crate") => {
                at.clear();
                rest = &rest[1..];
            }
            Some("self") => rest = &rest[1..],
            Some("super") => {}
            Some(name) => {
                let child = [at.as_slice(), &[name.to_owned()]].concat();
                let import = self.imports.get(&(at.clone(), name.to_owned()));
                if !self.modules.contains(&child) {
                    // Otherwise the path is one of another crate's, or of an enum in scope.
                    let import = import.filter(|import| *import != path)?;
                    let path = [import.as_slice(), &path[1..]].concat();
                    return self.resolve(from, &path, depth + 1);
                }
            }
            None => return None,
        }
        while rest.first().is_some_and(|name| name == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        while let Some((name, more)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains(&child) {
                (at, rest) = (child, more);
                continue;
            }
            if self.items.contains(&(at.clone(), name.clone())) {
                break;
            }
            if let Some(import) = self.imports.get(&(at.clone(), name.clone())) {
                let path = [import.as_slice(), more].concat();
                return self.resolve(&at, &path, depth + 1);
            }
            let globs = self.globs.get(&at).into_iter().flatten();
            let mut modules = globs.filter_map(|glob| self.resolve(&at, glob, depth + 1));
            if let Some(module) =
                modules.find(|module| self.items.contains(&(module.clone(), name.clone())))
            {
                at = module;
            }
            break;
        }
        Some(at)
    }
}

const DEPTH_MAX: usize = 16;

/// Reads one file.
struct Walk<'a> {
    into: &'a mut Crate,
    place: String,
    tokens: &'a [(Token<'a>, usize)],
    at: usize,
}

impl<'a> Walk<'a> {
    /// Reads items, or a function's statements, until the brace that ends them.
    fn block(&mut self, module: Module) {
        let mut depth = 0;
        let mut is_test = false;
        while let Some(token) = self.peek(0) {
            match token {
                Token::Punct('#') => is_test |= self.attribute(),
                Token::Punct('{') => {
                    depth += 1;
                    self.at += 1;
                }
                Token::Punct('}') => {
                    self.at += 1;
                    if depth == 0 {
                        return;
                    }
                    depth -= 1;
                }
                _ if is_test => {
                    is_test = false;
                    self.skip_item(&module);
                }
                Token::Word("mod") => self.child(&module),
                Token::Word("use") => {
                    self.at += 1;
                    self.tree(&module, Vec::new());
                }
                Token::Word("crate" | "super" | "self") if self.begins_path() => {
                    self.path(&module);
                }
                Token::Word("fn" | "struct" | "enum" | "trait" | "type" | "const" | "static") => {
                    self.at += 1;
                    if let Some(Token::Word(name)) = self.peek(0) {
                        let item = (module.clone(), (*name).to_owned());
                        self.into.items.insert(item);
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<&'a Token<'a>> {
        self.tokens.get(self.at + ahead).map(|(token, _)| token)
    }

    /// Passes an attribute; whether it is one that leaves its item to the tests.
    fn attribute(&mut self) -> bool {
        self.at += 1;
        if self.peek(0) == Some(&Token::Punct('!')) {
            self.at += 1;
        }
        let begin = self.at;
        self.skip_group();
        let is_word = |(token, _): &(Token, usize), word| *token == Token::Word(word);
        let group = &self.tokens[begin..self.at];
        let has = |word| group.iter().any(|token| is_word(token, word));
        has("cfg") && has("test") && !has("any") && !has("not")
    }

    /// Passes a group in brackets, whichever they are.
    fn skip_group(&mut self) {
        let mut depth = 0_usize;
        while let Some(token) = self.peek(0) {
            match token {
                Token::Punct('(' | '[' | '{') => depth += 1,
                Token::Punct(')' | ']' | '}') => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Passes an item, a field or a statement of the tests.
    fn skip_item(&mut self, module: &Module) {
        let mut is_use = false;
        while let Some(token) = self.peek(0) {
            match token {
                Token::Word("mod") => {
                    if let Some(Token::Word(name)) = self.peek(1) {
                        let test = [module.as_slice(), &[(*name).to_owned()]].concat();
                        self.into.tests.insert(test);
                    }
                    self.at += 1;
                }
                Token::Word("use") => {
                    is_use = true;
                    self.at += 1;
                }
                Token::Punct('{') => {
                    self.skip_group();
                    if !is_use {
                        return;
                    }
                }
                Token::Punct('(' | '[') => self.skip_group(),
                Token::Punct(';' | ',') => {
                    self.at += 1;
                    return;
                }
                Token::Punct('}') => return,
                _ => self.at += 1,
            }
        }
    }

    fn child(&mut self, module: &Module) {
        self.at += 1;
        let Some(Token::Word(name)) = self.peek(0) else {
            return;
        };
        let child = [module.as_slice(), &[(*name).to_owned()]].concat();
        self.at += 1;
        if self.peek(0) == Some(&Token::Punct('{')) {
            self.at += 1;
            self.into.modules.insert(child.clone());
            self.block(child);
        }
    }

    /// One branch of what `use` brings in.
    fn tree(&mut self, module: &Module, mut path: Vec<String>) {
        loop {
            match self.peek(0) {
                Some(Token::Word("as")) => {
                    if let Some(Token::Word(name)) = self.peek(1) {
                        let name = (*name).to_owned();
                        self.into
                            .imports
                            .insert((module.clone(), name), path.clone());
                    }
                    self.at += 2;
                    self.mention(module, path);
                    return;
                }
                Some(Token::Word(word)) => {
                    path.push((*word).to_owned());
                    self.at += 1;
                }
                Some(Token::Path) => self.at += 1,
                Some(Token::Punct('{')) => {
                    self.at += 1;
                    while !matches!(self.peek(0), None | Some(Token::Punct('}'))) {
                        self.tree(module, path.clone());
                        if self.peek(0) == Some(&Token::Punct(',')) {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                Some(Token::Punct('*')) => {
                    self.at += 1;
                    let globs = self.into.globs.entry(module.clone()).or_default();
                    globs.push(path.clone());
                    self.mention(module, path);
                    return;
                }
                _ => break,
            }
        }
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        if let [_, .., name] = path.as_slice() {
            let name = (module.clone(), name.clone());
            self.into.imports.insert(name, path.clone());
        }
        self.mention(module, path);
    }

    /// Whether the word here begins a path that is more than `pub(in …)`.
    fn begins_path(&self) -> bool {
        let before = self.at.checked_sub(1).map(|at| &self.tokens[at].0);
        let opened = self.at.checked_sub(2).map(|at| &self.tokens[at].0);
        let is_visibility =
            before == Some(&Token::Word("in")) && opened == Some(&Token::Punct('('));
        self.peek(1) == Some(&Token::Path) && before != Some(&Token::Path) && !is_visibility
    }

    fn path(&mut self, module: &Module) {
        let mut path = Vec::new();
        while let Some(Token::Word(word)) = self.peek(0) {
            path.push((*word).to_owned());
            self.at += 1;
            if self.peek(0) != Some(&Token::Path) {
                break;
            }
            self.at += 1;
        }
        self.mention(module, path);
    }

    fn mention(&mut self, module: &Module, path: Vec<String>) {
        let last = self.at.saturating_sub(1);
        let line = self.tokens.get(last).map_or(0, |(_, line)| *line);
        self.into.mentions.push(Mention {
            from: module.clone(),
            path,
            place: format!("{}:{line}", self.place),
        });
    }
}

/// The strongly connected components of more than one node.
fn components<'a>(edges: &BTreeSet<(&'a str, &'a str)>) -> Vec<Vec<&'a str>> {
    let mut reach = edges.clone();
    loop {
        let longer: Vec<_> = reach
            .iter()
            .flat_map(|(a, b)| {
                let onward = edges.iter().filter(move |(from, _)| from == b);
                onward.map(|(_, c)| (*a, *c))
            })
            .filter(|pair| !reach.contains(pair))
            .collect();
        if longer.is_empty() {
            break;
        }
        reach.extend(longer);
    }
    let mut found: Vec<Vec<&str>> = Vec::new();
    for (node, _) in reach.iter().filter(|(a, b)| a == b) {
        let is_mutual =
            |other: &&str| reach.contains(&(*node, *other)) && reach.contains(&(*other, *node));
        match found.iter_mut().find(|group| is_mutual(&group[0])) {
            Some(group) => group.push(node),
            None => found.push(vec![node]),
        }
    }
    found.retain(|group| group.len() > 1);
    found
}

#[cfg(test)]
mod tests;
