//! The configuration of a running AFTR. Its parts are shown and changed by path.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::config::Config;
use crate::file::{read, read_softwire, write, write_softwire};
use crate::path::{Path, PathError, Step};
use crate::table::{Change, ChangeError, Softwire, Table};
use crate::tables::Tables;
use crate::text::{Fault, ReadError};
use crate::tree::{self, Contents, Node, TreeError};

/// A configuration whose parts can be shown and changed.
#[derive(Debug)]
pub struct Live {
    config: Arc<Config>,
    tables: Tables,
    as_snabb: bool,
}

/// The configuration that a [`Live`] has at one moment.
#[derive(Clone, Debug)]
pub struct Used {
    /// Everything but the binding table.
    pub config: Arc<Config>,
    /// The binding table: which softwire each IPv4 address and port set belongs to.
    pub table: Arc<Table>,
}

/// How to change the part of a configuration that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Replace the contents of the part.
    Set,
    /// Add an entry to the list that the path names.
    Add,
    /// Remove the part: an entry of a list; or a leaf, which then has its default.
    Remove,
}

/// Why a request to show or change a part of the configuration fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The path that the request gives, such as `/softwire-config/name`, is malformed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The configuration has no part at the path of the request.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The binding table refuses the change.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The part of the configuration cannot have the value of the request.
    #[error("{0}")]
    Value(Fault),
    /// A path into the binding table names neither a softwire nor one of its leaves that can be
    /// set. The keys of a softwire cannot be set.
    #[error(
        "{0}: name a softwire by [ipv4=A][psid=N]; of its leaves, only b4-ipv6 and br-address can \
         be set"
    )]
    Softwire(String),
    /// The request changes the leaf or softwire of this path, but gives no value.
    #[error("{0} needs a value")]
    NoValue(String),
    /// The change would leave no queue, so nothing could run.
    #[error("the change would leave the configuration without a queue; at least one is needed")]
    NoQueue,
}

impl From<ReadError> for EditError {
    // The line is omitted: it counts in a text that the user never sees.
    fn from(error: ReadError) -> EditError {
        EditError::Value(error.fault)
    }
}

impl Live {
    /// Starts with the configuration `used`. `as_snabb`: see [`read`].
    #[must_use]
    pub fn new(used: Used, as_snabb: bool) -> Live {
        Live {
            config: used.config,
            tables: Tables::new(used.table, as_snabb),
            as_snabb,
        }
    }

    /// Returns the current configuration with its binding table.
    #[must_use]
    pub fn used(&self) -> Used {
        Used {
            config: Arc::clone(&self.config),
            table: Arc::clone(self.tables.used()),
        }
    }

    /// Replaces the whole configuration, including the binding table. The running AFTR changes only
    /// when the caller configures its graph again, from [`Live::used`].
    pub fn replace(&mut self, used: Used) {
        *self = Live::new(used, self.as_snabb);
    }

    /// The part that a path names, as text. The empty path and `/softwire-config` include the
    /// binding table.
    ///
    /// # Errors
    /// The path leads to nothing.
    pub fn get(&self, path: &Path) -> Result<String, EditError> {
        let names = path.names();
        if !names.starts_with(&TABLE) {
            let mut nodes = Node::read_all(&write(&self.config))?;
            if names.len() < TABLE.len() && matches!(names[..], [] | ["softwire-config"]) {
                return self.with_table(nodes, path);
            }
            return Ok(tree::get(&mut nodes, path)?);
        }
        match &path.steps[TABLE.len()..] {
            [] => Ok(self.table_text(0)),
            [step] if step.name == "softwire" && step.keys.is_empty() => Ok(self.table_text(0)),
            [step, rest @ ..] => {
                let softwire = self.softwire(step, path)?;
                let mut nodes = Node::read_all(&write_softwire(&softwire))?;
                let steps = rest.to_vec();
                Ok(tree::get(&mut nodes, &Path { steps })?)
            }
        }
    }

    /// Writes the whole configuration, with the binding table at its end.
    fn with_table(&self, nodes: Vec<Node>, path: &Path) -> Result<String, EditError> {
        let depth = 1 - path.steps.len();
        let mut text = match path.steps.first() {
            None => Node::write_all(&nodes),
            Some(_) => nodes.iter().map(Node::contents).collect(),
        };
        let is_closed = depth == 1 && text.ends_with("}\n");
        if is_closed {
            text.truncate(text.len() - 2);
        }
        let indent = 2 * depth;
        let _ = writeln!(text, "{:indent$}binding-table {{", "");
        text += &self.table_text(depth + 1);
        let _ = writeln!(text, "{:indent$}}}", "");
        if is_closed {
            text += "}\n";
        }
        Ok(text)
    }

    fn table_text(&self, depth: usize) -> String {
        let mut softwires: Vec<Softwire> = self.tables.used().softwires().collect();
        softwires.sort_unstable_by_key(|softwire| (softwire.ipv4, softwire.psid));
        let (indent, mut text) = (2 * depth, String::new());
        for softwire in &softwires {
            let members = write_softwire(softwire);
            let words: Vec<&str> = members.split_whitespace().collect();
            let _ = writeln!(text, "{:indent$}softwire {{ {} }}", "", words.join(" "));
        }
        text
    }

    fn softwire(&self, step: &Step, path: &Path) -> Result<Softwire, EditError> {
        let (ipv4, psid) = keys(step, path)?;
        let found = self.tables.used().softwire(ipv4, psid);
        Ok(found.ok_or(ChangeError::DoesNotExist { ipv4, psid })?)
    }

    /// Makes one change, after which [`Live::used`] returns the new configuration. An invalid
    /// change leaves everything as it was.
    ///
    /// # Errors
    /// The change is invalid.
    pub fn edit(&mut self, edit: Edit, path: &Path, value: Option<&str>) -> Result<(), EditError> {
        let contents = match (edit, value) {
            (Edit::Remove, _) => None,
            (_, None) => return Err(EditError::NoValue(path.to_string())),
            (_, Some(text)) => Some(Contents::read(text)?),
        };
        if path.names().starts_with(&TABLE) {
            let change = self.change_of(edit, path, contents)?;
            Ok(self.tables.change(&change)?)
        } else {
            self.edit_rest(edit, path, contents)
        }
    }

    fn change_of(
        &self,
        edit: Edit,
        path: &Path,
        contents: Option<Contents>,
    ) -> Result<Change, EditError> {
        let whole = |contents: Option<Contents>| match contents {
            Some(Contents::Block(members)) => Ok(read_softwire(&Node::write_all(&members))?),
            _ => Err(EditError::Softwire(path.to_string())),
        };
        match (edit, &path.steps[TABLE.len()..]) {
            (Edit::Add, [step]) if step.name == "softwire" && step.keys.is_empty() => {
                Ok(Change::Add(whole(contents)?))
            }
            (Edit::Remove, [step]) => {
                let Softwire { ipv4, psid, .. } = self.softwire(step, path)?;
                Ok(Change::Remove { ipv4, psid })
            }
            (Edit::Set, [step]) => {
                let (old, new) = (self.softwire(step, path)?, whole(contents)?);
                if (old.ipv4, old.psid) == (new.ipv4, new.psid) {
                    Ok(Change::Replace(new))
                } else {
                    Err(EditError::Softwire(path.to_string()))
                }
            }
            (Edit::Set, [step, leaf]) if ["b4-ipv6", "br-address"].contains(&&*leaf.name) => {
                let mut nodes = Node::read_all(&write_softwire(&self.softwire(step, path)?))?;
                let steps = vec![leaf.clone()];
                let contents = contents.unwrap_or(Contents::Value(String::new()));
                tree::set(&mut nodes, &Path { steps }, contents)?;
                Ok(Change::Replace(read_softwire(&Node::write_all(&nodes))?))
            }
            _ => Err(EditError::Softwire(path.to_string())),
        }
    }

    fn edit_rest(
        &mut self,
        edit: Edit,
        path: &Path,
        contents: Option<Contents>,
    ) -> Result<(), EditError> {
        let mut nodes = Node::read_all(&write(&self.config))?;
        match (edit, contents) {
            (Edit::Set, Some(contents)) => tree::set(&mut nodes, path, contents)?,
            (Edit::Add, Some(contents)) => tree::add(&mut nodes, path, contents)?,
            _ => tree::remove(&mut nodes, path)?,
        }
        let loaded = read(&Node::write_all(&nodes), self.as_snabb)?;
        if loaded
            .config
            .instances
            .iter()
            .all(|instance| instance.queues.is_empty())
        {
            return Err(EditError::NoQueue);
        }
        // The value was a whole configuration with its own table.
        let has_table = !loaded.table.is_empty();
        let table = if has_table {
            Arc::new(loaded.table)
        } else {
            Arc::clone(self.tables.used())
        };
        self.replace(Used {
            config: Arc::new(loaded.config),
            table,
        });
        Ok(())
    }
}

/// The IPv4 address and the PSID in the keys of a path's step `softwire`.
fn keys(step: &Step, path: &Path) -> Result<(Ipv4Addr, u16), EditError> {
    let wrong = || EditError::Softwire(path.to_string());
    if step.name != "softwire" || step.position.is_some() || step.keys.len() != 2 {
        return Err(wrong());
    }
    let ipv4 = step.key("ipv4").and_then(|text| text.parse().ok());
    let psid = step.key("psid").and_then(|text| text.parse().ok());
    Ok((ipv4.ok_or_else(wrong)?, psid.ok_or_else(wrong)?))
}

/// The path of the binding table.
const TABLE: [&str; 2] = ["softwire-config", "binding-table"];

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../tests/files/snabb-v3.conf");

    fn live() -> Live {
        let loaded = read(TEXT, false).unwrap();
        let used = Used {
            config: Arc::new(loaded.config),
            table: Arc::new(loaded.table),
        };
        Live::new(used, false)
    }

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    const SOFTWIRES: &str = "/softwire-config/binding-table/softwire";

    #[test]
    fn whole_configuration_is_shown_as_it_is_read() {
        let live = live();
        for (at, head, tail) in [
            ("/", "", ""),
            ("/softwire-config", "softwire-config {", "}"),
        ] {
            let text = format!("{head}{}{tail}", live.get(&path(at)).unwrap());
            let again = read(&text, false).unwrap();
            assert_eq!(again.config, *live.used().config, "{text}");
            assert_eq!(again.table.len(), live.used().table.len());
        }
    }

    #[test]
    fn softwires_come_change_and_go_one_by_one() {
        let mut live = live();
        let before = live.used().table.len();
        let new = "{ ipv4 192.0.2.77; psid 3; b4-ipv6 fd00::1; br-address fd00::2; \
                   port-set { psid-length 4; } }";
        live.edit(Edit::Add, &path(SOFTWIRES), Some(new)).unwrap();
        assert_eq!(live.used().table.len(), before + 1);
        let one = path(&format!("{SOFTWIRES}[ipv4=192.0.2.77][psid=3]"));
        let leaf = path(&format!("{SOFTWIRES}[ipv4=192.0.2.77][psid=3]/b4-ipv6"));
        assert_eq!(live.get(&leaf).unwrap(), "fd00::1");
        live.edit(Edit::Set, &leaf, Some("fd00::77")).unwrap();
        let found = live
            .used()
            .table
            .find([192, 0, 2, 77], Some(0x3fff))
            .unwrap();
        assert_eq!(found.b4[14..], [0, 0x77]);
        assert!(live.get(&one).unwrap().contains("b4-ipv6 fd00::77;\n"));
        for (edit, at, value, words) in [
            (Edit::Add, SOFTWIRES, Some(new), "already exists"),
            (Edit::Set, SOFTWIRES, Some(new), "name a softwire by"),
            (
                Edit::Add,
                SOFTWIRES,
                Some("{ ipv4 1.2.3.4; }"),
                "the softwire lacks psid",
            ),
            (Edit::Add, SOFTWIRES, None, "needs a value"),
        ] {
            let error = live.edit(edit, &path(at), value).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        live.edit(Edit::Remove, &one, None).unwrap();
        assert_eq!(live.used().table.len(), before);
        let error = live.edit(Edit::Remove, &one, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "softwire 192.0.2.77 psid 3 does not exist"
        );
    }

    #[test]
    fn the_rest_changes_beside_the_table() {
        let mut live = live();
        let before = live.used();
        let mtu = path("/softwire-config/internal-interface/mtu");
        live.edit(Edit::Set, &mtu, Some("1400")).unwrap();
        assert_eq!(live.used().config.internal.mtu, 1400);
        assert!(Arc::ptr_eq(&before.table, &live.used().table));
        assert_eq!(live.get(&mtu).unwrap(), "1400");
        for (edit, at, value, words) in [
            (
                Edit::Set,
                "/softwire-config/internal-interface/mtu",
                Some("12"),
                "at least 1280",
            ),
            (
                Edit::Set,
                "/softwire-config/nonsense",
                Some("12"),
                "cannot contain \"nonsense\"",
            ),
            (
                Edit::Remove,
                "/softwire-config/instance",
                None,
                "without a queue",
            ),
        ] {
            let error = live.edit(edit, &path(at), value).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(live.used().config.internal.mtu, 1400);
        live.edit(Edit::Remove, &mtu, None).unwrap();
        assert_eq!(
            live.used().config.internal.mtu,
            1500,
            "as where nothing is said"
        );
    }
}
