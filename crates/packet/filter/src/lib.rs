//! The packet filter language of libpcap (pcap-filter(7)) for Ethernet: a compiler, and the
//! programs that it makes.
//!
//! ```text
//!   text --token--> tokens --parse, primitives--> conditions --lower--> program --matches--> bool
//! ```
//!
//! A filter means what it means to libpcap, with the same order of tests, because a test of bytes
//! that a frame does not have rejects the frame, however the rest of the filter would judge it. The
//! tests hold it against libpcap itself, with generated filters and packets.
//!
//! Implemented are
//! - `host`, `net`, `port`, `portrange` and `proto`, with `src`, `dst`, `src or dst`, `src and
//!   dst`;
//! - `ether`, `ip`, `ip6`, `arp`, `rarp`, `tcp`, `udp`, `sctp`, `icmp`, `icmp6`, `igmp`, `pim`,
//!   `vrrp`, `ah`, `esp`, alone and in front of these;
//! - `vlan`, `less`, `greater`, `len`, `broadcast`, `multicast`;
//! - `proto[expr:size]` with `+ - * / % & | ^ << >>` and `= == != < <= > >=`.
//!
//! Names of ports and protocols are those of tables here ([`SERVICES`], [`PROTOCOLS`]); names of
//! hosts and networks are refused, because a filter asks no resolver. `gateway`, `protochain`,
//! `inbound`, `ip broadcast`, `mpls`, `pppoes`, `geneve` and other link layers are refused by name.
//!
//! `and` and `or` have the same precedence and associate to the left, as pcap-filter(7) says. As in
//! libpcap, a byte of the right operand of an arithmetic operator does not bring the test of its
//! protocol with it: in `len - ip[2:2] > 20` the frame may be of any protocol.
#![forbid(unsafe_code)]

mod address;
mod condition;
mod error;
mod layout;
mod lower;
mod names;
mod operand;
mod parse;
mod primitives;
mod program;
mod qualifiers;
mod reader;
mod relation;
mod token;

pub use error::FilterError;
pub use names::{PROTOCOLS, SERVICES, Service};
pub use program::Program;

/// The longest text of a filter in bytes.
pub const TEXT_MAX: usize = 16 * 1024;

/// A compiled filter.
#[derive(Clone, Debug)]
pub struct Filter {
    program: Program,
}

impl Filter {
    /// Compiles a filter. An empty one matches every frame.
    ///
    /// # Errors
    /// The text is no filter, or has a part of the language that is not implemented; the error says
    /// where, and what would be right.
    pub fn compile(text: &str) -> Result<Filter, FilterError> {
        if text.len() > TEXT_MAX {
            return Err(FilterError::TooLong { bytes: text.len() });
        }
        let tokens = token::tokens(text)?;
        let (conditions, root) = parse::parse(&tokens, text.len())?;
        let program = lower::lower(&conditions, root)?;
        Ok(Filter { program })
    }

    /// Whether a frame passes: its bytes from the destination's MAC address on.
    #[must_use]
    #[inline]
    pub fn matches(&self, frame: &[u8]) -> bool {
        self.program.run(frame)
    }

    /// What runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }
}
