//! A compiler for libpcap's packet filter language (pcap-filter(7)) on Ethernet frames, and the
//! interpreter of its programs.
//!
//! ```text
//!   text --token--> tokens --parse, primitives--> conditions --lower--> program --matches--> bool
//! ```
//!
//! A filter has the same meaning as in libpcap, including the order of its tests: a test of bytes
//! beyond the end of a frame rejects the frame, whatever the rest of the filter says. The tests
//! compare the compiler with libpcap itself, on generated filters and packets.
//!
//! The following is implemented:
//! - `host`, `net`, `port`, `portrange` and `proto`, with `src`, `dst`, `src or dst`, `src and
//!   dst`;
//! - `ether`, `ip`, `ip6`, `arp`, `rarp`, `tcp`, `udp`, `sctp`, `icmp`, `icmp6`, `igmp`, `pim`,
//!   `vrrp`, `ah`, `esp`, alone and in front of the above;
//! - `vlan`, `less`, `greater`, `len`, `broadcast`, `multicast`;
//! - `proto[expr:size]` with `+ - * / % & | ^ << >>` and `= == != < <= > >=`.
//!
//! The names of ports and protocols are those of the tables [`SERVICES`] and [`PROTOCOLS`]. Names
//! of hosts and networks are refused, because the compiler asks no name server. `gateway`,
//! `protochain`, `inbound`, `ip broadcast`, `mpls`, `pppoes`, `geneve` and other link layers are
//! refused with an error that names them.
//!
//! `and` and `or` have the same precedence and associate to the left, as pcap-filter(7) says. As in
//! libpcap, a field in the right operand of an arithmetic operator does not imply a test of its
//! protocol: `len - ip[2:2] > 20` also applies to frames of other protocols.
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

/// Length of the longest filter text, in bytes.
pub const TEXT_MAX: usize = 16 * 1024;

/// A compiled filter, which decides whether to accept a frame.
#[derive(Clone, Debug)]
pub struct Filter {
    program: Program,
}

impl Filter {
    /// Compiles a filter. An empty text matches every frame.
    ///
    /// # Errors
    /// The text is not a valid filter, or uses a part of the language that is not implemented. The
    /// error gives the position, and what would be right.
    pub fn compile(text: &str) -> Result<Filter, FilterError> {
        if text.len() > TEXT_MAX {
            return Err(FilterError::TooLong { bytes: text.len() });
        }
        let tokens = token::tokens(text)?;
        let (conditions, root) = parse::parse(&tokens, text.len())?;
        let program = lower::lower(&conditions, root)?;
        Ok(Filter { program })
    }

    /// Whether the filter accepts a frame, whose bytes begin with the destination MAC address.
    #[must_use]
    #[inline]
    pub fn matches(&self, frame: &[u8]) -> bool {
        self.program.run(frame)
    }

    /// The instructions into which the filter was compiled.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }
}
