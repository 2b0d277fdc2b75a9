//! Domains of Xen: the configuration that `xl` reads, and the commands that start and end them.

use std::path::{Path, PathBuf};
use std::process::Command;

use carina_api::LocalName;

use crate::cache::write_whole;
use crate::error::{Error, Result};
use crate::kernel::PARAMETERS;
use crate::machine::percent_encoded;
use crate::tool;

/// How a domain uses the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XenKind {
    /// Paravirtual: needs no support of the processor.
    Pv,
    /// A paravirtual kernel in a hardware container: needs VMX or SVM.
    Pvh,
}

/// A domain that boots a kernel and an initramfs of Carina.
#[derive(Debug, Clone)]
#[must_use]
pub struct XenDomain {
    name: LocalName,
    kind: XenKind,
    kernel: PathBuf,
    initramfs: PathBuf,
    memory_mib: u32,
    cpus: u32,
    words: Vec<String>,
    bridges: Vec<String>,
}

impl XenDomain {
    /// Describes a domain with 256 MiB and one processor.
    pub fn new(name: LocalName, kind: XenKind, kernel: &Path, initramfs: &Path) -> XenDomain {
        XenDomain {
            name,
            kind,
            kernel: kernel.to_owned(),
            initramfs: initramfs.to_owned(),
            memory_mib: 256,
            cpus: 1,
            words: Vec::new(),
            bridges: Vec::new(),
        }
    }

    /// Sets the memory, in MiB.
    pub fn memory_mib(mut self, memory_mib: u32) -> XenDomain {
        self.memory_mib = memory_mib;
        self
    }

    /// Sets the number of processors.
    pub fn cpus(mut self, cpus: u32) -> XenDomain {
        self.cpus = cpus;
        self
    }

    /// Adds a word to the kernel's command line.
    pub fn parameter(mut self, word: impl Into<String>) -> XenDomain {
        self.words.push(word.into());
        self
    }

    /// Adds a shell command that the guest runs after its boot.
    pub fn command(self, command: &str) -> XenDomain {
        self.parameter(format!("carina.cmd={}", percent_encoded(command)))
    }

    /// Adds a network card whose back end is added to a bridge of Dom0. The initramfs must have the
    /// module `xen_netfront`.
    pub fn bridged_card(mut self, bridge: &str) -> XenDomain {
        self.bridges.push(bridge.to_owned());
        self
    }

    /// The configuration in the syntax of `xl.cfg(5)`.
    #[must_use]
    pub fn configuration(&self) -> String {
        let kind = match self.kind {
            XenKind::Pv => "pv",
            XenKind::Pvh => "pvh",
        };
        // A kernel with the module of cards finds them by itself.
        let cards = if self.bridges.is_empty() {
            ""
        } else {
            ",xen_netfront"
        };
        let modules = format!("xen_evtchn,xen_gntalloc{cards}");
        let mut line = format!(
            "{PARAMETERS} console=hvc0 carina.name={} carina.modules={modules} carina.node=1",
            self.name
        );
        for word in &self.words {
            line.push(' ');
            line.push_str(word);
        }
        let mut text = format!(
            "name = {}\ntype = \"{kind}\"\nkernel = {}\nramdisk = {}\nextra = {}\nmemory = \
             {}\nvcpus = {}\non_crash = \"destroy\"\n",
            quoted(self.name.as_str()),
            quoted(&self.kernel.to_string_lossy()),
            quoted(&self.initramfs.to_string_lossy()),
            quoted(&line),
            self.memory_mib,
            self.cpus,
        );
        if !self.bridges.is_empty() {
            let cards = self.bridges.iter();
            let cards = cards.map(|bridge| quoted(&format!("bridge={bridge}")));
            text += &format!("vif = [ {} ]\n", cards.collect::<Vec<_>>().join(", "));
        }
        text
    }

    /// Writes the configuration to `file`, and starts the domain by `xl`.
    ///
    /// # Errors
    /// `xl` is missing, or refuses.
    pub fn create(&self, file: &Path) -> Result<()> {
        write_whole(file, self.configuration().as_bytes())?;
        let mut command = xl()?;
        tool::output(command.args(["create", "-q"]).arg(file)).map(drop)
    }
}

/// Ends a domain at once by `xl destroy`.
///
/// # Errors
/// `xl` is missing, or the domain does not run.
pub fn destroy_xen_domain(name: &LocalName) -> Result<()> {
    tool::output(xl()?.args(["destroy", name.as_str()])).map(drop)
}

/// Asks a domain to power itself off by `xl shutdown`, and waits until it has.
///
/// # Errors
/// `xl` is missing, or the domain does not run.
pub fn shut_down_xen_domain(name: &LocalName) -> Result<()> {
    tool::output(xl()?.args(["shutdown", "-w", name.as_str()])).map(drop)
}

/// The number of the domain with this name.
///
/// # Errors
/// `xl` is missing, or the domain does not run.
pub fn xen_domain_number(name: &LocalName) -> Result<u16> {
    let told = tool::output(xl()?.args(["domid", name.as_str()]))?;
    let text = String::from_utf8_lossy(&told).trim().to_owned();
    text.parse().map_err(|_| Error::Command {
        command: format!("xl domid {name}"),
        detail: format!("{text:?} is no number of a domain"),
    })
}

/// The lines that attach a user's own domain: its guest needs two modules and a node.
#[must_use]
pub fn xen_domain_lines(name: &LocalName) -> String {
    format!(
        "# No device: the domain's node grants memory to Dom0. The domain's kernel needs the\n\
         # modules xen_gntalloc and xen_evtchn. Its node needs an IPCP:\n\
         #   type = \"hv\", side = \"guest\"\n\
         # The port finds the domain by this name in its xl configuration:\n\
         name = {}\n",
        quoted(name.as_str())
    )
}

fn xl() -> Result<Command> {
    let path = tool::find("xl", "xen-utils-4.17").or_else(|error| {
        // Debian keeps the tools of each version in a directory of its own.
        let private = Path::new("/usr/lib/xen-4.17/bin/xl");
        let is_there = private.is_file();
        is_there.then(|| private.to_owned()).ok_or(error)
    })?;
    Ok(Command::new(path))
}

/// A string of `xl.cfg`, whose quotes cannot be escaped: the other kind of quote is taken.
fn quoted(text: &str) -> String {
    let quote = if text.contains('"') { '\'' } else { '"' };
    format!("{quote}{text}{quote}")
}

/// Whether the processors and Xen of this host can run domains of kind [`XenKind::Pvh`].
///
/// # Errors
/// `xl` is missing, or this system is not Dom0.
pub fn xen_has_pvh() -> Result<bool> {
    let told = tool::output(xl()?.arg("info"))?;
    let text = String::from_utf8_lossy(&told).into_owned();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, caps) = lines
        .find(|(key, _)| key.trim() == "virt_caps")
        .ok_or_else(|| Error::Command {
            command: "xl info".into(),
            detail: "it prints no virt_caps".into(),
        })?;
    Ok(caps
        .split_whitespace()
        .any(|word| matches!(word, "hap" | "shadow")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_what_xl_needs() {
        let name: LocalName = "a".parse().unwrap();
        let domain = XenDomain::new(name, XenKind::Pvh, Path::new("/k"), Path::new("/i"))
            .memory_mib(200)
            .cpus(2)
            .parameter("carina.cmd=echo%20x")
            .bridged_card("br0");
        let text = domain.configuration();
        for line in [
            "name = \"a\"",
            "type = \"pvh\"",
            "kernel = \"/k\"",
            "ramdisk = \"/i\"",
            "memory = 200",
            "vcpus = 2",
            "vif = [ \"bridge=br0\" ]",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        for word in [
            "console=hvc0",
            "carina.name=a",
            "carina.node=1",
            "xen_netfront",
            "carina.cmd=echo%20x",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
