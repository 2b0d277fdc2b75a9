//! Frequent requests of the host to a guest. Each is a line of a script that the agent in the guest
//! executes itself, without a shell.

use std::net::Ipv4Addr;

use crate::echo::Asks;

/// MAC address of a network card.
pub(crate) type Mac = [u8; 6];

/// An IPv4 address with the length of its network prefix; or a network prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub address: Ipv4Addr,
    /// Length of the prefix in bits, 0 to 32.
    pub bits: u8,
}

/// A request of the host to the agent in its guest: one line at the beginning of a script that the
/// host sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// `carina_be NAME SECONDS SEED`: take the identity of a clone: host name, time in seconds
    /// since 1970, and a seed for random numbers.
    Be {
        name: String,
        seconds: i64,
        seed: String,
    },
    /// `carina_card FROM TO`: change the MAC address of the card that has `from`.
    Card { from: Mac, to: Mac },
    /// `carina_link MAC NAME ADDRESS/BITS MTU`: configure the card with this MAC address. Set its
    /// name, its only IP address and its MTU (bytes), bring it up, and enable forwarding.
    Link {
        mac: Mac,
        name: String,
        address: Prefix,
        mtu: u32,
    },
    /// `carina_via NEIGHBOUR ADDRESS/BITS...`: add routes to these prefixes over one neighbour.
    Via {
        neighbour: Ipv4Addr,
        prefixes: Vec<Prefix>,
    },
    /// `carina_file MODE BASE64 PATH`: write a file. `MODE` is its permissions in octal digits;
    /// `BASE64` is its content, or `-` for an empty file.
    File {
        path: String,
        mode: u32,
        data: Vec<u8>,
    },
    /// `carina_echo OWN NEIGHBOUR SECONDS [once]`: send echo requests from the address `OWN` to a
    /// neighbour until one is answered, and report the round-trip time. With `once`, send one
    /// request. Give up after `SECONDS`.
    Echo {
        own: Ipv4Addr,
        peer: Ipv4Addr,
        seconds: u64,
        asks: Asks,
    },
    /// `carina_rehearse MAC OTHER-MAC ADDRESS/BITS NEIGHBOUR`: configure a card as a node does, and
    /// undo that. In an emulated guest the first configuration takes much longer than later ones,
    /// because QEMU then translates its code.
    Rehearse {
        mac: Mac,
        other: Mac,
        address: Prefix,
        neighbour: Ipv4Addr,
    },
}

/// Splits a script into the orders at its beginning, and the rest, which a shell runs.
///
/// # Errors
/// A line begins with `carina_` and is not a valid order. The error quotes the line.
pub(crate) fn orders_of(script: &str) -> Result<(Vec<Order>, &str), String> {
    let mut orders = Vec::new();
    let mut rest = script;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if !line.trim().is_empty() {
            let Some(words) = line.strip_prefix("carina_") else {
                break;
            };
            let order = order(words).ok_or_else(|| format!("not understood: {line:.100}"))?;
            orders.push(order);
        }
        rest = after;
    }
    Ok((orders, rest))
}

fn order(line: &str) -> Option<Order> {
    let mut words = line.split_ascii_whitespace();
    let verb = words.next()?;
    let order = match verb {
        "be" => Order::Be {
            name: words.next()?.to_owned(),
            seconds: words.next()?.parse().ok()?,
            seed: words.next()?.to_owned(),
        },
        "card" => Order::Card {
            from: mac(words.next()?)?,
            to: mac(words.next()?)?,
        },
        "link" => Order::Link {
            mac: mac(words.next()?)?,
            name: interface(words.next()?)?,
            address: prefix(words.next()?)?,
            mtu: words.next()?.parse().ok()?,
        },
        "via" => {
            let neighbour = words.next()?.parse().ok()?;
            let prefixes: Option<Vec<Prefix>> = words.by_ref().map(prefix).collect();
            Order::Via {
                neighbour,
                prefixes: prefixes?,
            }
        }
        "file" => return file(line),
        "echo" => Order::Echo {
            own: words.next()?.parse().ok()?,
            peer: words.next()?.parse().ok()?,
            seconds: words.next()?.parse().ok()?,
            asks: match words.next() {
                None => Asks::Again,
                Some("once") => Asks::Once,
                Some(_) => return None,
            },
        },
        "rehearse" => Order::Rehearse {
            mac: mac(words.next()?)?,
            other: mac(words.next()?)?,
            address: prefix(words.next()?)?,
            neighbour: words.next()?.parse().ok()?,
        },
        _ => return None,
    };
    words.next().is_none().then_some(order)
}

/// Parses a `file` order. The path is the rest of the line and may contain spaces.
fn file(line: &str) -> Option<Order> {
    let mut words = line.splitn(4, ' ').skip(1);
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let data = match words.next()? {
        "-" => Vec::new(),
        text => crate::base64::decode(text)?,
    };
    let path = words.next()?.to_owned();
    path.starts_with('/')
        .then_some(Order::File { path, mode, data })
}

fn mac(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut words = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(words.next()?, 16).ok()?;
    }
    words.next().is_none().then_some(mac)
}

/// Checks the name of an interface: at most 15 bytes, as in the kernel.
fn interface(text: &str) -> Option<String> {
    let fits = text.len() <= 15 && !text.contains('/');
    fits.then(|| text.to_owned())
}

fn prefix(text: &str) -> Option<Prefix> {
    let (address, bits) = text.split_once('/')?;
    let bits = bits.parse().ok().filter(|bits| *bits <= 32)?;
    Some(Prefix {
        address: address.parse().ok()?,
        bits,
    })
}

/// A MAC address as text.
pub(crate) fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_orders_and_then_a_shells() {
        let script = "carina_be r1 1800000000 c2VlZA==\n\ncarina_card 02:ff:00:00:00:00 \
                      02:00:00:00:00:09\ncarina_link 02:00:00:00:00:09 eth0 10.0.0.1/30 1480\n\
                      carina_via 10.0.0.2 10.0.0.4/30 10.0.0.8/30\nls\ncarina_echo x\n";
        let (orders, rest) = orders_of(script).unwrap();
        assert_eq!(rest, "ls\ncarina_echo x\n");
        assert_eq!(orders.len(), 4);
        assert_eq!(
            orders[2],
            Order::Link {
                mac: [2, 0, 0, 0, 0, 9],
                name: "eth0".to_owned(),
                address: prefix("10.0.0.1/30").unwrap(),
                mtu: 1480,
            }
        );
        let Order::Via { prefixes, .. } = &orders[3] else {
            panic!("{:?}", orders[3]);
        };
        assert_eq!(prefixes.len(), 2);
        assert_eq!(orders_of("ls -l").unwrap(), (vec![], "ls -l"));
        assert_eq!(orders_of("").unwrap(), (vec![], ""));
    }

    #[test]
    fn files_have_any_path_and_may_be_empty() {
        let (orders, _) =
            orders_of("carina_file 600 aGk= /etc/it's mine\ncarina_file 644 - /e").unwrap();
        let expected = [("/etc/it's mine", 0o600, &b"hi"[..]), ("/e", 0o644, b"")];
        for (order, (path, mode, data)) in orders.into_iter().zip(expected) {
            let (path, data) = (path.to_owned(), data.to_vec());
            assert_eq!(order, Order::File { path, mode, data });
        }
    }

    #[test]
    fn what_only_begins_like_an_order_is_refused() {
        for line in [
            "carina_fly",
            "carina_card 02:ff:00:00:00:00",
            "carina_card 02:ff:00:00:00 02:00:00:00:00:09",
            "carina_link 02:00:00:00:00:09 eth0 10.0.0.1/33 1480",
            "carina_link 02:00:00:00:00:09 ../x 10.0.0.1/30 1480",
            "carina_link 02:00:00:00:00:09 eth0 10.0.0.1/30 1480 more",
            "carina_file 600 aGk= relative",
            "carina_file 600 a /x",
            "carina_echo 10.0.0.1 10.0.0.2",
        ] {
            let error = orders_of(line).unwrap_err();
            assert!(error.contains(line), "{error}");
        }
    }
}
