//! Test of the comparison of `carina sim scale`, with small sizes: both arrangements are measured
//! to the end.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_sim::scale::{Layout, Progress, Report, Size, measure};

fn measured(layout: Layout) -> (Report, usize) {
    let size = Size {
        systems: 48,
        regions: 4,
        above: 2,
        seed: 1,
    };
    let mut milestones = 0;
    let count = |what| milestones += usize::from(matches!(what, Progress::Milestone(_)));
    let report = measure(layout, size, carina_sim::member_factory(), count).unwrap();
    (report, milestones)
}

fn median(values: &[u64]) -> u64 {
    values[values.len() / 2]
}

#[test]
fn small_difs_hold_and_send_less_than_one_of_all() {
    let (flat, milestones) = measured(Layout::Flat);
    assert_eq!((flat.ipcps, flat.difs, milestones), (48, 1, 2));
    assert_eq!(flat.routes, vec![47; 48]);
    let (recursive, _) = measured(Layout::Recursive);
    // A DIF in each region, a backbone of four systems, and an upper DIF with two systems of each
    // region.
    assert_eq!((recursive.ipcps, recursive.difs), (48 + 4 + 8, 6));
    assert!(recursive.messages < flat.messages);
    assert!(recursive.bytes < flat.bytes);
    assert!(median(&recursive.objects) < median(&flat.objects));
    assert_eq!(median(&recursive.routes), 11, "the others of the region");
    let (again, _) = measured(Layout::Recursive);
    assert_eq!(
        (again.messages, again.converged_ns, again.cut_messages),
        (
            recursive.messages,
            recursive.converged_ns,
            recursive.cut_messages
        )
    );
}
