//! Kernel modules with their dependencies, in the order in which they must be loaded.
//!
//! A package that was only unpacked has no `modules.dep`, so the dependencies are read from the
//! modules themselves: the `.modinfo` section has `depends=a,b`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Context, Error, Result};
use crate::tool;

/// A loadable module, uncompressed.
#[derive(Debug)]
pub(crate) struct Module {
    /// Name of the module as the kernel spells it, with `_` in place of `-`.
    pub(crate) name: String,
    /// Contents of the object file.
    pub(crate) object: Vec<u8>,
}

/// All modules below a `lib/modules/RELEASE` directory.
pub(crate) struct Index {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

impl Index {
    pub(crate) fn read(root: &Path) -> Result<Index> {
        let mut index = Index {
            files: BTreeMap::new(),
            builtin: BTreeSet::new(),
        };
        index.walk(root)?;
        let builtin = root.join("modules.builtin");
        if let Ok(listing) = fs::read_to_string(&builtin) {
            index
                .builtin
                .extend(listing.lines().filter_map(|line| stem(Path::new(line))));
        }
        Ok(index)
    }

    /// The module `name` and its dependencies, dependencies first; empty if it is built into the
    /// kernel.
    pub(crate) fn closure(&self, name: &str) -> Result<Vec<Module>> {
        let mut order = Vec::new();
        self.visit(&name.replace('-', "_"), &mut BTreeSet::new(), &mut order)?;
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<Module>,
    ) -> Result<()> {
        if !seen.insert(name.to_owned()) || self.builtin.contains(name) {
            return Ok(());
        }
        let path = self.files.get(name).ok_or_else(|| Error::Invalid {
            what: format!("kernel module {name}"),
            reason: "the kernel package has no such module".into(),
        })?;
        let object = read_object(path)?;
        for needed in dependencies(&object) {
            self.visit(&needed, seen, order)?;
        }
        order.push(Module {
            name: name.to_owned(),
            object,
        });
        Ok(())
    }

    fn walk(&mut self, directory: &Path) -> Result<()> {
        for entry in fs::read_dir(directory).context("read", directory)? {
            let path = entry.context("read", directory)?.path();
            if path.is_dir() && !path.is_symlink() {
                self.walk(&path)?;
            } else if let Some(name) = stem(&path) {
                self.files.insert(name, path);
            }
        }
        Ok(())
    }
}

/// The name of the module in the file `path`: `a_b` for `a-b.ko`, `.ko.xz`, `.ko.zst` or `.ko.gz`.
/// `None` if `path` is not a module.
fn stem(path: &Path) -> Option<String> {
    let (name, rest) = path.file_name()?.to_str()?.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

fn read_object(path: &Path) -> Result<Vec<u8>> {
    let (program, package) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("zst") => ("zstd", "zstd"),
        Some("gz") => ("gzip", "gzip"),
        _ => return fs::read(path).context("read", path),
    };
    tool::output(
        Command::new(tool::find(program, package)?)
            .arg("-dc")
            .arg(path),
    )
}

fn dependencies(object: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = object.windows(key.len()).position(|window| window == key) else {
        return Vec::new();
    };
    let value = &object[at + key.len()..];
    let end = value
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(modules: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("kernel/net")).unwrap();
        for (name, depends) in modules {
            let object = format!("\x7fELF junk\0license=GPL\0depends={depends}\0retpoline=Y\0");
            fs::write(root.path().join("kernel/net").join(name), object).unwrap();
        }
        fs::write(root.path().join("modules.builtin"), "kernel/lib/crc-x.ko\n").unwrap();
        root
    }

    fn names(root: &Path, name: &str) -> Vec<String> {
        let modules = Index::read(root).unwrap().closure(name).unwrap();
        modules.into_iter().map(|module| module.name).collect()
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let root = tree(&[
            ("virtio-net.ko", "net_failover,virtio"),
            ("net_failover.ko", "failover"),
            ("failover.ko", ""),
            ("virtio.ko", "crc-x"),
        ]);
        let order = names(root.path(), "virtio_net");
        assert_eq!(order, ["failover", "net_failover", "virtio", "virtio_net"]);
    }

    #[test]
    fn built_in_module_needs_no_file() {
        let root = tree(&[]);
        assert!(names(root.path(), "crc-x").is_empty());
    }

    #[test]
    fn dependency_cycle_ends() {
        let root = tree(&[("a.ko", "b"), ("b.ko", "a")]);
        assert_eq!(names(root.path(), "a"), ["b", "a"]);
    }

    #[test]
    fn absent_module_is_named_in_the_error() {
        let root = tree(&[("a.ko", "gone")]);
        let error = Index::read(root.path()).unwrap().closure("a").unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
    }
}
