//! Compares tables with a model that examines the bits of each port one by one.

use std::collections::HashMap;

use carina_random::Random;

use super::*;

fn softwire(ipv4: u32, psid: u16, ports: PortSets, number: u32) -> Softwire {
    Softwire {
        ipv4: Ipv4Addr::from(ipv4),
        psid,
        ports,
        b4: Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number)),
        br: Ipv6Addr::from((0x2001_0db8_ffff_u128 << 80) | u128::from(number % 3)),
    }
}

fn ports(offset_bits: u8, psid_bits: u8) -> PortSets {
    PortSets {
        offset_bits,
        psid_bits,
    }
}

/// Softwires of addresses with all kinds of port sets; some port sets of each address have no
/// owner.
fn random(seed: u64) -> Vec<Softwire> {
    let mut random = Random::new(seed);
    let mut made = Vec::new();
    let mut address = 0x0a00_0000;
    for _ in 0..40 {
        address += 1 + random.below(3) as u32;
        let offset = random.below(17) as u8;
        let sets = ports(offset, random.below(u64::from(17 - offset)).min(7) as u8);
        for psid in 0..1_u32 << sets.psid_bits {
            if random.chance(8000) {
                made.push(softwire(address, psid as u16, sets, made.len() as u32));
            }
        }
    }
    made
}

fn built(softwires: &[Softwire], as_snabb: bool) -> Table {
    let mut builder = TableBuilder::default();
    for (line, softwire) in softwires.iter().enumerate() {
        builder.add(softwire, line as u32).unwrap();
    }
    builder.build(as_snabb).unwrap()
}

/// The owner of a port, found by its bits as RFC 7597 §5.1 draws them.
fn owner(softwires: &[Softwire], ipv4: Ipv4Addr, port: u16, as_snabb: bool) -> Option<&Softwire> {
    let mut of_address = softwires.iter().filter(|softwire| softwire.ipv4 == ipv4);
    of_address.find(|softwire| {
        let PortSets {
            offset_bits,
            psid_bits,
        } = softwire.ports;
        let text = format!("{port:016b}");
        let (head, rest) = text.split_at(usize::from(offset_bits));
        let psid = u16::from_str_radix(&format!("0{}", &rest[..usize::from(psid_bits)]), 2);
        let is_free = if as_snabb {
            offset_bits > 0 && u32::from(port) < 2_u32.pow(u32::from(offset_bits))
        } else {
            offset_bits > 0 && !head.contains('1')
        };
        psid == Ok(softwire.psid) && !is_free
    })
}

#[test]
fn every_port_belongs_to_the_owner_that_the_bits_name() {
    for seed in 0..12 {
        let softwires = random(seed);
        let as_snabb = seed % 2 == 1;
        let table = built(&softwires, as_snabb);
        let again = Table::from_compiled(&table.compile(), as_snabb).unwrap();
        assert_eq!(table.len(), softwires.len());
        let mut random = Random::new(seed);
        for _ in 0..1500 {
            let ipv4 = Ipv4Addr::from(0x0a00_0000 + random.below(140) as u32);
            let port = random.next_u64() as u16 >> random.below(16);
            let expected = owner(&softwires, ipv4, port, as_snabb).map(|softwire| Tunnel {
                b4: softwire.b4.octets(),
                br: softwire.br.octets(),
            });
            for table in [&table, &again] {
                let found = table.find(ipv4.octets(), Some(port));
                assert_eq!(found, expected, "seed {seed}: {ipv4} port {port}");
            }
        }
    }
}

#[test]
fn table_gives_back_what_it_was_made_of() {
    let softwires = random(7);
    let table = built(&softwires, false);
    let count = |softwires: &mut dyn Iterator<Item = Softwire>| {
        let mut counts: HashMap<Softwire, usize> = HashMap::new();
        softwires.for_each(|softwire| *counts.entry(softwire).or_default() += 1);
        counts
    };
    assert_eq!(
        count(&mut table.softwires()),
        count(&mut softwires.iter().copied())
    );
    let again = built(&table.softwires().collect::<Vec<_>>(), false);
    assert_eq!(count(&mut again.softwires()), count(&mut table.softwires()));
}

#[test]
fn packets_without_port_belong_to_unshared_addresses() {
    let table = built(
        &[
            softwire(1, 0, ports(0, 0), 1),
            softwire(2, 0, ports(0, 1), 2),
            softwire(3, 0, ports(4, 0), 3),
        ],
        false,
    );
    let has = |last| table.find([0, 0, 0, last], None).is_some();
    assert_eq!([1, 2, 3, 4].map(has), [true, false, false, false]);
    assert!(table.has_address([0, 0, 0, 3]) && !table.has_address([0, 0, 0, 4]));
}

#[test]
fn overlapping_port_sets_are_refused_with_both_lines() {
    let build = |softwires: &[(Softwire, u32)]| {
        let mut builder = TableBuilder::default();
        for (softwire, line) in softwires {
            builder
                .add(softwire, *line)
                .map_err(|error| (*line, error))?;
        }
        builder.build(false)
    };
    let one = softwire(9, 1, ports(0, 2), 1);
    let (line, error) = build(&[(one, 30), (softwire(9, 1, ports(0, 3), 2), 20)]).unwrap_err();
    assert_eq!(line, 30);
    assert!(matches!(error, TableError::Overlap { other: 20, .. }));
    let (line, error) = build(&[(one, 3), (softwire(9, 1, ports(0, 2), 5), 4)]).unwrap_err();
    assert_eq!(line, 4);
    assert_eq!(
        error.to_string(),
        "softwire 0.0.0.9 psid 1 is already on line 3"
    );
    let (_, error) = build(&[(softwire(9, 1, ports(9, 8), 1), 3)]).unwrap_err();
    assert!(matches!(error, TableError::Bits { .. }));
}

#[test]
fn compiled_table_that_was_changed_is_refused() {
    let good = built(&random(3), false).compile();
    for cut in [0, 8, 27, 28, good.len() - 1] {
        assert!(Table::from_compiled(&good[..cut], false).is_err(), "{cut}");
    }
    let mut random = Random::new(1);
    for _ in 0..500 {
        let mut bad = good.clone();
        let at = random.index(bad.len());
        bad[at] ^= 1 << random.below(8);
        assert!(Table::from_compiled(&bad, false).is_err(), "byte {at}");
    }
    let empty = Table::empty().compile();
    assert!(Table::from_compiled(&empty, false).unwrap().is_empty());
}

/// Softwires in the order of their keys.
fn sorted(softwires: impl Iterator<Item = Softwire>) -> Vec<Softwire> {
    let mut all: Vec<Softwire> = softwires.collect();
    all.sort_by_key(|softwire| (softwire.ipv4, softwire.psid));
    all
}

#[test]
fn table_that_was_changed_is_as_one_that_was_built() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let all = self::random(seed);
        let mut expected: HashMap<(Ipv4Addr, u16), Softwire> = HashMap::new();
        let mut table = Table::empty();
        for step in 0..3 * all.len() {
            let mut softwire = all[random.below(all.len() as u64) as usize];
            let key = (softwire.ipv4, softwire.psid);
            let change = match (expected.contains_key(&key), random.chance(5000)) {
                (false, _) => Change::Add(softwire),
                (true, true) => Change::Remove {
                    ipv4: key.0,
                    psid: key.1,
                },
                (true, false) => {
                    softwire.b4 = Ipv6Addr::from(step as u128);
                    softwire.br = Ipv6Addr::from(random.below(40) as u128);
                    Change::Replace(softwire)
                }
            };
            table.change(&change, false).unwrap();
            match change {
                Change::Remove { .. } => expected.remove(&key),
                _ => expected.insert(key, softwire),
            };
        }
        let left = sorted(expected.into_values());
        assert_eq!(
            (table.len(), sorted(table.softwires())),
            (left.len(), left.clone())
        );
        let fresh = built(&left, false);
        for softwire in &all {
            let found = table.softwire(softwire.ipv4, softwire.psid);
            assert_eq!(found, fresh.softwire(softwire.ipv4, softwire.psid));
            for port in (0..=u16::MAX).step_by(97) {
                let address = softwire.ipv4.octets();
                assert_eq!(
                    table.find(address, Some(port)),
                    fresh.find(address, Some(port))
                );
                assert_eq!(table.has_address(address), fresh.has_address(address));
            }
        }
    }
}

#[test]
fn impossible_changes_are_refused_and_change_nothing() {
    let first = softwire(0x0a00_0001, 1, ports(0, 4), 1);
    let mut table = built(&[first], false);
    let other = |psid, ports| softwire(0x0a00_0001, psid, ports, 2);
    let absent = Change::Remove {
        ipv4: first.ipv4,
        psid: 2,
    };
    for (change, words) in [
        (Change::Add(first), "already exists"),
        (absent, "softwire 10.0.0.1 psid 2 does not exist"),
        (Change::Replace(other(2, ports(0, 4))), "does not exist"),
        (
            Change::Add(other(2, ports(0, 5))),
            "port sets of 10.0.0.1 overlap",
        ),
        (
            Change::Add(other(2, ports(9, 9))),
            "must be at most 16 together",
        ),
        (Change::Add(other(16, ports(0, 4))), "psid 16 does not fit"),
    ] {
        let error = table.change(&change, false).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(sorted(table.softwires()), [first]);
    }
}
