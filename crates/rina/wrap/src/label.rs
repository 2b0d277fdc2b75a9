//! Labels: the two addresses of a flow's socket as its program sees them, kept by the kernel.
//!
//! A flow is an `AF_UNIX` socket. Its name, in the abstract name space, is a label:
//!
//! ```text
//! \0 "carina:" 8 hex digits, random ":" THIS "," OTHER
//!
//! THIS, OTHER = "10.9.1.1:80" | 32 hex digits of an IPv6 address ":" port | "-" (no OTHER)
//! ```
//!
//! `THIS` is the address of this end, `OTHER` the address of the remote end. The socket keeps its
//! label through `fork`, `exec` and `SCM_RIGHTS`. `ss -x` shows labels.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The two addresses of a socket, as its program sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Address of this end of the flow, or of the listening socket.
    pub this: SocketAddr,
    /// Address of the remote end of the flow; `None` for a socket that listens.
    pub other: Option<SocketAddr>,
}

impl Label {
    /// Returns the label as an abstract socket name, without the leading null byte; `random` makes
    /// the name unique.
    pub fn encode(&self, random: u32) -> String {
        let other = self.other.map_or_else(|| "-".to_owned(), shown);
        format!("{PREFIX}{random:08x}:{},{other}", shown(self.this))
    }

    /// Decodes an abstract socket name; `None` when it is not a label.
    pub fn decode(name: &[u8]) -> Option<Label> {
        let text = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
        let (random, addresses) = text.split_once(':')?;
        if random.len() != 8 || !is_hex(random) {
            return None;
        }
        let (this, other) = addresses.split_once(',')?;
        Some(Label {
            this: parsed(this)?,
            other: match other {
                "-" => None,
                other => Some(parsed(other)?),
            },
        })
    }
}

fn shown(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(_) => address.to_string(),
        IpAddr::V6(ip) => format!("{:032x}:{}", u128::from(ip), address.port()),
    }
}

fn parsed(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    if ip.len() == 32 && is_hex(ip) {
        let ip = Ipv6Addr::from(u128::from_str_radix(ip, 16).ok()?);
        return Some(SocketAddr::new(ip.into(), port));
    }
    Some(SocketAddr::new(ip.parse::<Ipv4Addr>().ok()?.into(), port))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

const PREFIX: &str = "carina:";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Longest abstract name that the kernel accepts, in bytes without the null byte.
    const NAME_BYTES_MAX: usize = 107;

    fn address() -> impl Strategy<Value = SocketAddr> {
        (any::<bool>(), any::<u128>(), any::<u16>()).prop_map(|(is_four, ip, port)| {
            let ip = if is_four {
                IpAddr::from(Ipv4Addr::from(ip as u32))
            } else {
                IpAddr::from(Ipv6Addr::from(ip))
            };
            SocketAddr::new(ip, port)
        })
    }

    proptest! {
        #[test]
        fn label_reads_as_it_was_written(
            this in address(), other in proptest::option::of(address()), random: u32,
        ) {
            let label = Label { this, other };
            let name = label.encode(random);
            prop_assert!(name.len() <= NAME_BYTES_MAX);
            prop_assert_eq!(Label::decode(name.as_bytes()), Some(label));
        }

        #[test]
        fn any_bytes_are_a_label_or_none(bytes: Vec<u8>) {
            let _ = Label::decode(&bytes);
        }
    }

    #[test]
    fn names_of_others_are_no_labels() {
        for name in [
            "",
            "carina:",
            "carina:0:1.2.3.4:5,-",
            "carina:0123456x:1.2.3.4:5,-",
            "carina:01234567:1.2.3.4:5",
            "carina:01234567:1.2.3.4:66000,-",
            "carina:01234567:1.2.3.4:5,",
        ] {
            assert_eq!(Label::decode(name.as_bytes()), None, "{name}");
        }
    }
}
