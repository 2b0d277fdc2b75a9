//! A network in a directory: its document, its layout, and the state of its machines.
//!
//! ```text
//!   DIR/vnet.json     the manifest; written last, so a directory without it is incomplete
//!   DIR/NODE.guest    memory, processors and devices of a machine, as QEMU sends them
//! ```
//!
//! A restored network has the uid, numbers and addresses of the saved one. The hashes detect
//! damage, not malice: a user who can write to the directory controls the machines, as with a disk
//! image.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use carina_vm::{Hardware, SavedGuest};
use carina_vnet::document::{Document, Kind, Link, is_name};
use carina_vnet::host_part::VnetId;
use carina_vnet::layout::Layout;
use serde::{Deserialize, Serialize};

use crate::alone::record_of;
use crate::directory::{Record, VnetDir};
use crate::error::{Attempt, Error, Result};
use crate::impairment;
use crate::removal::remove_file;
use crate::saved_error::{FORMAT, VERSION};
use crate::state_file;
use crate::switched_off::{self, SwitchedOff};
use carina_vnet::impairment::Impairments;

pub use crate::saved_error::SavedError;

/// Content of `vnet.json`: the description of a saved network, without the states of its machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Constant text that identifies the file as the manifest of a saved network.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Identifier (uid) of the network.
    pub vnet: VnetId,
    /// Document that describes the network.
    pub document: Document,
    /// Numbers and interfaces of its links.
    pub layout: Layout,
    /// Virtual machines of the network, by the names of their nodes.
    pub machines: BTreeMap<String, SavedNode>,
    /// Impairments of its links, by number.
    #[serde(default, skip_serializing_if = "Impairments::is_empty")]
    pub impairments: Impairments,
    /// Links that its operator has taken down, by number.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub links_down: BTreeSet<u32>,
}

/// A machine of a network that was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedNode {
    /// Hardware of the machine, as its guest sees it.
    pub hardware: Hardware,
    /// Number of the card of each interface, by the name of the interface.
    pub cards: BTreeMap<String, u32>,
    /// Size and hash of the file with the guest's state.
    pub guest: SavedGuest,
}

/// A saved network that was read from a directory and checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// The directory with the saved network.
    from: PathBuf,
    manifest: Manifest,
}

/// The fields that say whether this program can read the rest of a manifest.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    format: String,
    #[serde(default)]
    version: u32,
}

impl Manifest {
    /// Manifest of a network, still without machines.
    pub(crate) fn new(vnet: VnetId, document: &Document, layout: &Layout) -> Manifest {
        Manifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            vnet,
            document: document.clone(),
            layout: layout.clone(),
            machines: BTreeMap::new(),
            impairments: Impairments::new(),
            links_down: BTreeSet::new(),
        }
    }

    /// Reads and checks a manifest. `path` is the file, for error messages.
    ///
    /// # Errors
    /// The text is not a manifest, has another version, or contradicts itself.
    pub fn read(text: &[u8], path: &Path) -> std::result::Result<Manifest, SavedError> {
        let content = |what: String| SavedError::Content {
            path: path.to_owned(),
            what,
        };
        let head: Head =
            serde_json::from_slice(text).map_err(|error| content(error.to_string()))?;
        if head.format != FORMAT || head.version != VERSION {
            return Err(SavedError::Version {
                path: path.to_owned(),
                format: head.format.chars().take(64).collect(),
                version: head.version,
            });
        }
        let manifest: Manifest =
            serde_json::from_slice(text).map_err(|error| content(error.to_string()))?;
        manifest.check().map_err(content)?;
        Ok(manifest)
    }

    /// Writes the manifest as JSON.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("a manifest has no keys but texts")
    }

    fn check(&self) -> std::result::Result<(), String> {
        if Layout::of(&self.document, &self.layout) != self.layout {
            return Err("the layout does not match the document".to_owned());
        }
        for name in self.document.node.keys() {
            let resolved = self.document.resolved(name);
            let is_machine = resolved.is_some_and(|node| node.kind == Kind::Vm);
            if is_machine != self.machines.contains_key(name) {
                let has = if is_machine {
                    "has no state"
                } else {
                    "has a state"
                };
                return Err(format!("node {name} {has}"));
            }
        }
        for (name, saved) in &self.machines {
            if !is_name(name) || !self.document.node.contains_key(name) {
                let name: String = name.chars().take(64).collect();
                return Err(format!(
                    "there is a saved state of {name:?}, but the document has no such node"
                ));
            }
            saved
                .hardware
                .check()
                .map_err(|error| format!("node {name}: {error}"))?;
            for (interface, card) in &saved.cards {
                if saved
                    .hardware
                    .cards
                    .iter()
                    .all(|candidate| candidate.id != *card)
                {
                    return Err(format!(
                        "node {name}: interface {interface} refers to card {card}, which the node \
                         does not have"
                    ));
                }
            }
        }
        for (number, on_top) in &self.impairments {
            let mut laid = self.layout.links().filter(|(it, _)| it == number);
            let link = laid.find_map(|(_, laid)| self.document.link.get(laid.place));
            let of_document = link.map(Link::impairment).unwrap_or_default();
            impairment::check(&on_top.over(&of_document))
                .map_err(|error| format!("link {number}: {error}"))?;
        }
        Ok(())
    }
}

impl Saved {
    /// Reads and checks a saved network: the manifest, and the states of all machines.
    ///
    /// # Errors
    /// The directory contains no saved network, or is damaged.
    pub fn open(from: &Path) -> Result<Saved> {
        let path = from.join(MANIFEST);
        let what = || format!("reading {}", path.display());
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(SavedError::Missing(path).into());
            }
            file => file.attempt(what())?,
        };
        let mut text = Vec::new();
        file.take(MANIFEST_BYTES_MAX + 1)
            .read_to_end(&mut text)
            .attempt(what())?;
        if text.len() as u64 > MANIFEST_BYTES_MAX {
            let what = format!("it has more than {MANIFEST_BYTES_MAX} bytes");
            return Err(SavedError::Content { path, what }.into());
        }
        let manifest = Manifest::read(&text, &path)?;
        for (node, saved) in &manifest.machines {
            let checked = saved.guest.check(&state_of(from, node));
            checked.map_err(|source| SavedError::Guest {
                node: node.clone(),
                source,
            })?;
        }
        Ok(Saved {
            from: from.to_owned(),
            manifest,
        })
    }

    /// Returns the saved network from which a network is being restored. `None` if the network is
    /// not being restored.
    pub(crate) fn of_network(dir: &VnetDir, record: &Record) -> Result<Option<Saved>> {
        if record.is_settled {
            // An agent was killed after the restore, before it removed the note.
            Saved::forget(dir)?;
            return Ok(None);
        }
        state_file::read(&dir.restoring())
    }

    /// Marks a network as being restored from this saved network, until [`Saved::forget`]. Also
    /// writes the saved impairments and the links that were down.
    pub(crate) fn note(&self, dir: &VnetDir) -> Result<()> {
        let path = dir.restoring();
        let text = serde_json::to_vec(self).attempt("noting where a network comes from")?;
        fs::write(&path, text).attempt(format!("writing {}", path.display()))?;
        impairment::write(dir, &self.manifest.impairments)?;
        let off = SwitchedOff {
            links: self.manifest.links_down.clone(),
            ..SwitchedOff::default()
        };
        switched_off::write(dir, &off)
    }

    /// Marks the network as restored: from now on, nodes that are recreated boot.
    pub(crate) fn forget(dir: &VnetDir) -> Result<()> {
        remove_file(&dir.restoring())
    }

    /// The checked manifest of the saved network.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Record of the network, with the uid and the layout that it had.
    pub(crate) fn record(&self) -> Result<Record> {
        let manifest = &self.manifest;
        record_of(
            &manifest.document,
            manifest.vnet,
            1,
            manifest.layout.clone(),
        )
    }

    /// A machine and the file with its state. `None` if the network has no such machine.
    pub(crate) fn node(&self, name: &str) -> Option<(&SavedNode, PathBuf)> {
        let node = self.manifest.machines.get(name)?;
        Some((node, state_of(&self.from, name)))
    }
}

/// The file with the state of a machine.
pub(crate) fn state_of(directory: &Path, node: &str) -> PathBuf {
    directory.join(format!("{node}.guest"))
}

/// Creates the directory for a network that is to be saved. Only its owner has access to it.
pub(crate) fn create(directory: &Path) -> Result<()> {
    let what = format!("making {}", directory.display());
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(SavedError::Exists(directory.to_owned()).into())
        }
        made => made.attempt(what),
    }
}

/// Writes the manifest, which makes the directory complete.
pub(crate) fn complete(directory: &Path, manifest: &Manifest) -> Result<()> {
    let path = directory.join(MANIFEST);
    let part = directory.join(format!("{MANIFEST}.part"));
    let text = manifest.write();
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(&part);
    file.and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()
    })
    .and_then(|()| fs::rename(&part, &path))
    .attempt(format!("writing {}", path.display()))
}

impl From<SavedError> for Error {
    fn from(error: SavedError) -> Error {
        Error::Saved(Box::new(error))
    }
}

const MANIFEST: &str = "vnet.json";
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use carina_vnet::document::Form;

    use super::*;

    fn manifest() -> Manifest {
        let text = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\nkind = \"namespace\"\n\
                    [[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n";
        let document = Document::read(text, Form::Toml).unwrap();
        let layout = Layout::of(&document, &Layout::default());
        let mut manifest = Manifest::new(VnetId::new(7), &document, &layout);
        let hardware = serde_json::json!({
            "machine": "pc-q35-7.2", "accel": "tcg", "memory_mib": 128, "cpus": 1, "ports": 5,
            "cards": [{ "id": 0, "port": 0, "mac": [2, 0, 0, 0, 0, 1] }]
        });
        let saved = SavedNode {
            hardware: serde_json::from_value(hardware).unwrap(),
            cards: [("eth0".to_owned(), 0)].into(),
            guest: SavedGuest {
                bytes: 3,
                hash: "00".into(),
            },
        };
        manifest.machines.insert("a".to_owned(), saved);
        manifest
    }

    fn words(directory: &Path) -> String {
        Saved::open(directory).unwrap_err().to_string()
    }

    #[test]
    fn manifest_is_read_back_and_says_what_is_wrong() {
        let path = Path::new("/x/vnet.json");
        let good = manifest();
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(Manifest::read(text.as_bytes(), path).unwrap(), good);
        let refusal = |text: &str| {
            Manifest::read(text.as_bytes(), path)
                .unwrap_err()
                .to_string()
        };
        let cut = refusal(&text[..text.len() / 2]);
        assert!(
            cut.contains("/x/vnet.json") && cut.contains("line 1"),
            "{cut}"
        );
        let other = refusal("{\"format\": \"ova\", \"version\": 2}");
        assert!(other.contains("\"ova\", version 2"), "{other}");
        let newer = refusal(&text.replace("\"version\":1", "\"version\":9"));
        assert!(newer.contains("version 9"), "{newer}");
        let stranger = refusal(&text.replace("\"vnet\":", "\"more\":1,\"vnet\":"));
        assert!(stranger.contains("more"), "{stranger}");
        let change = |change: fn(&mut Manifest)| {
            let mut saved = manifest();
            change(&mut saved);
            refusal(&serde_json::to_string(&saved).unwrap())
        };
        assert!(change(|saved| saved.machines.clear()).contains("node a has no state"));
        let moved = change(|saved| {
            let a = saved.machines["a"].clone();
            saved.machines.insert("../a".to_owned(), a);
        });
        assert!(
            moved.contains("\"../a\", but the document has no such node"),
            "{moved}"
        );
        let namespace = change(|saved| {
            let a = saved.machines["a"].clone();
            saved.machines.insert("b".to_owned(), a);
        });
        assert!(namespace.contains("node b has a state"), "{namespace}");
        assert!(change(|saved| saved.layout = Layout::default()).contains("layout"));
        let card = change(|saved| {
            saved.machines.get_mut("a").unwrap().cards = [("eth0".into(), 5)].into()
        });
        assert!(card.contains("card 5"), "{card}");
    }

    #[test]
    fn damaged_directories_are_refused_with_the_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("saved");
        create(&path).unwrap();
        let exists = create(&path).unwrap_err().to_string();
        assert!(exists.contains("name one that does not exist"), "{exists}");
        assert!(words(&path).contains("interrupted"), "{}", words(&path));
        complete(&path, &manifest()).unwrap();
        assert!(words(&path).contains("state of a"), "{}", words(&path));
        fs::write(state_of(&path, "a"), "ab").unwrap();
        assert!(words(&path).contains("2 bytes, but 3"), "{}", words(&path));
        fs::write(state_of(&path, "a"), "abc").unwrap();
        assert!(
            words(&path).contains("the file is damaged"),
            "{}",
            words(&path)
        );
    }
}
