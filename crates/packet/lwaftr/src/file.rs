//! Reads and writes configuration files.
//!
//! A file has `softwire-config` of the model `snabb-softwire` (version 3; version 2, whose text is
//! a subset of it; or version 1), or `br-instances` of `ietf-softwire-br` (RFC 8676), or both: the
//! IETF model has no interfaces. The statements of both blocks take effect in the order of the
//! file. A later value replaces an earlier one, and the softwires of both go into one binding
//! table.

mod compiled;
mod ietf;
mod snabb;
mod version1;
mod write;

use std::net::{Ipv4Addr, Ipv6Addr};

use carina_filter::Filter;

use self::version1::Version1;
use crate::config::{Config, External, Internal, Side};
use crate::table::{PortSets, Softwire, Table, TableBuilder};
use crate::text::{Fault, ReadError, Reader, Statement};

pub use self::compiled::{CompiledFileError, compile, is_compiled, read_compiled};
pub use self::write::{write, write_softwire};

/// What was read from a configuration file: configuration, binding table and warnings.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Everything but the binding table.
    pub config: Config,
    /// The binding table: which softwire each IPv4 address and port set belongs to.
    pub table: Table,
    /// Warnings about statements that take effect otherwise than their author may expect.
    pub warnings: Vec<String>,
}

/// Reads a configuration file from its text. `as_snabb` selects which low ports belong to no port
/// set: see [`PortSets::first_port`].
///
/// # Errors
/// The text is not a valid configuration; the error names the fault and its line.
pub fn read(text: &str, as_snabb: bool) -> Result<Loaded, ReadError> {
    // The text of a softwire has about 150 bytes.
    let builder = TableBuilder::with_capacity(text.len() / 150);
    let mut file = File {
        reader: Reader::new(text),
        config: Config::default(),
        builder,
        unmatched: Unmatched::default(),
        version1: Version1::default(),
        checked_lines: Vec::new(),
    };
    let mut is_empty = true;
    while let Some(statement) = file.reader.statement()? {
        is_empty = false;
        match statement.keyword {
            "softwire-config" => file.softwire_config(&statement)?,
            "br-instances" => file.br_instances(&statement)?,
            "softwire-state" => {
                statement.expect_block()?;
                file.reader.skip_block()?;
            }
            _ => return Err(statement.unknown("the file", "softwire-config, br-instances")),
        }
    }
    if is_empty {
        let fault = "the file has neither softwire-config nor br-instances".to_owned();
        return Err(Fault::Model(fault).at(file.reader.line()));
    }
    file.make_instance1()?;
    check(&file.config).map_err(|(member, fault)| fault.at(file.line_of(member)))?;
    let table = file.builder.build(as_snabb);
    Ok(Loaded {
        config: file.config,
        table: table.map_err(|(line, error)| Fault::Model(error.to_string()).at(line))?,
        warnings: file.unmatched.warnings(),
    })
}

/// Reads the statements inside one `softwire` block.
///
/// # Errors
/// The text is not a valid softwire; the error names the fault and its line.
pub fn read_softwire(text: &str) -> Result<Softwire, ReadError> {
    let mut file = File {
        reader: Reader::new(text),
        config: Config::default(),
        builder: TableBuilder::default(),
        unmatched: Unmatched::default(),
        version1: Version1::default(),
        checked_lines: Vec::new(),
    };
    let mut parts = Parts::default();
    while let Some(statement) = file.reader.statement()? {
        file.softwire_member(&statement, &mut parts)?;
    }
    parts.whole(file.reader.line(), snabb::SOFTWIRE_NAMES)
}

/// Softwires that no port can match, because their PSID does not fit into its length.
#[derive(Default)]
struct Unmatched {
    count: u64,
    first: Option<(u32, Softwire)>,
}

impl Unmatched {
    fn warnings(&self) -> Vec<String> {
        let warning = self.first.as_ref().map(|(line, softwire)| {
            let Softwire {
                ipv4, psid, ports, ..
            } = softwire;
            format!(
                "{} softwires are left out, because their PSID does not fit into psid-length; the \
                 first, on line {line}, is {ipv4} psid {psid} with psid-length {}",
                self.count, ports.psid_bits
            )
        });
        warning.into_iter().collect()
    }
}

struct File<'a> {
    reader: Reader<'a>,
    config: Config,
    builder: TableBuilder,
    unmatched: Unmatched,
    version1: Version1,
    /// The lines of members that [`check`] may refuse.
    checked_lines: Vec<(Member, u32)>,
}

/// A member of a side of the AFTR: the name of the side's container, and the member's keyword in
/// `snabb-softwire`.
type Member = (&'static str, &'static str);

const EXTERNAL: &str = "external-interface";
const INTERNAL: &str = "internal-interface";

impl<'a> File<'a> {
    /// Reads a block, and passes each of its statements to `member`.
    fn block(
        &mut self,
        opening: &Statement<'_>,
        mut member: impl FnMut(&mut Self, &Statement<'a>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        opening.expect_block()?;
        while let Some(statement) = self.reader.statement()? {
            member(self, &statement)?;
        }
        Ok(())
    }

    /// The line of a member that was read; of a member that was not, the line reached.
    fn line_of(&self, member: Member) -> u32 {
        let mut lines = self.checked_lines.iter();
        let line = lines.rfind(|(other, _)| *other == member);
        line.map_or(self.reader.line(), |(_, line)| *line)
    }

    fn add(&mut self, line: u32, softwire: &Softwire) -> Result<(), ReadError> {
        let is_matched = u32::from(softwire.psid) < 1 << softwire.ports.psid_bits.min(16);
        if !is_matched {
            self.unmatched.count += 1;
            self.unmatched.first.get_or_insert((line, *softwire));
            return Ok(());
        }
        let added = self.builder.add(softwire, line);
        added.map_err(|error| Fault::Model(error.to_string()).at(line))
    }
}

/// The statements of a softwire that have been read so far.
#[derive(Default)]
struct Parts {
    ipv4: Option<Ipv4Addr>,
    psid: Option<u16>,
    b4: Option<Ipv6Addr>,
    br: Option<Ipv6Addr>,
    ports: PortSets,
    has_port_set: bool,
    /// Version 1 only: the position of the softwire's BR address in the list `br-address`, from 1.
    br_number: Option<u32>,
}

impl Parts {
    fn whole(self, line: u32, names: [&'static str; 4]) -> Result<Softwire, ReadError> {
        let missing = |missing| {
            let container = "the softwire";
            Fault::Missing { container, missing }.at(line)
        };
        let [ipv4, psid, b4, br] = names;
        Ok(Softwire {
            ipv4: self.ipv4.ok_or_else(|| missing(ipv4))?,
            psid: self.psid.ok_or_else(|| missing(psid))?,
            ports: self.ports,
            b4: self.b4.ok_or_else(|| missing(b4))?,
            br: self.br.ok_or_else(|| missing(br))?,
        })
    }
}

const BITS: &str = "a number of bits, 0 to 16,";
const PORT: &str = "a number, 0 to 65535,";
const ADDRESS4: &str = "an IPv4 address";
const ADDRESS6: &str = "an IPv6 address";
const YES_NO: &str = "true or false";

fn bits(statement: &Statement<'_>) -> Result<u8, ReadError> {
    statement.parse_where(BITS, |bits: &u8| *bits <= 16)
}

/// Checks rules that involve several statements. The error has the member that is wrong.
fn check(config: &Config) -> Result<(), (Member, Fault)> {
    let External { mtu, .. } = config.external;
    if mtu < External::MTU_MIN {
        let least = External::MTU_MIN;
        let fault = format!("the external mtu is {mtu}: must be at least {least}");
        return Err(((EXTERNAL, "mtu"), Fault::Model(fault)));
    }
    let Internal { mtu, .. } = config.internal;
    if mtu < Internal::MTU_MIN {
        let least = Internal::MTU_MIN;
        let fault = format!("the internal mtu is {mtu}: must be at least {least}");
        return Err(((INTERNAL, "mtu"), Fault::Model(fault)));
    }
    for (name, side) in [
        (EXTERNAL, &config.external.side),
        (INTERNAL, &config.internal.side),
    ] {
        let Side {
            ingress_filter,
            egress_filter,
            ..
        } = side;
        for (keyword, filter) in [
            ("ingress-filter", ingress_filter),
            ("egress-filter", egress_filter),
        ] {
            if let Some(Err(error)) = filter.as_deref().map(Filter::compile) {
                let fault = Fault::Model(format!("{name}: {keyword}: {error}"));
                return Err(((name, keyword), fault));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
