//! Combines the counters of all workers of an AFTR.

use std::collections::BTreeMap;

use carina_frame_engine::counter_file::Reading;

use super::APP;

/// The counters by name, without the name of the worker. Most are sums. `next-hop-ipv4-resolved`
/// and `next-hop-ipv6-resolved` are 1 if all workers know the next hop; `path-mtus` is the maximum,
/// because all workers learn the same. `ingress-packet-drops` counts frames that ports and full
/// links lost before a worker received them.
pub(super) fn of_all_workers(readings: &[Reading]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for Reading { name, value, .. } in readings {
        let (name, value) = match name.split_once('/') {
            Some((app, name)) if is_worker(app) => (name, *value),
            Some((place, name)) if is_ingress_loss(place, name) => ("ingress-packet-drops", *value),
            _ => continue,
        };
        let together = match (all.get(name), name) {
            (None, _) => value,
            (Some(before), "next-hop-ipv4-resolved" | "next-hop-ipv6-resolved") => {
                value.min(*before)
            }
            (Some(before), "path-mtus") => value.max(*before),
            (Some(before), _) => value + before,
        };
        all.insert(name.to_owned(), together);
    }
    all
}

/// Whether an app is a worker's AFTR.
fn is_worker(app: &str) -> bool {
    let rest = app.strip_prefix(APP);
    rest.is_some_and(|rest| rest.is_empty() || is_number(rest))
}

/// Whether a counter counts frames that were lost between the segment and a worker: at a port, or
/// on a link to a spreader or a worker.
fn is_ingress_loss(place: &str, name: &str) -> bool {
    match place.split_once(" -> ") {
        None => name == "drop_missed" && ["external", "internal", "stick"].contains(&place),
        Some((_, to)) => {
            let app = to.split('.').next().unwrap_or_default();
            name == "drops" && (is_worker(app) || app.starts_with("spread-"))
        }
    }
}

/// Whether a text is `-` and digits: the suffix of a worker's app.
fn is_number(rest: &str) -> bool {
    let digits = rest.strip_prefix('-').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_workers_are_summed_by_name() {
        let reading = |name: &str, value| Reading {
            name: name.to_owned(),
            changes: 1,
            value,
        };
        let all = of_all_workers(&[
            reading("lwaftr-00/in-ipv4-packets", 3),
            reading("lwaftr-01/in-ipv4-packets", 4),
            reading("lwaftr-00/next-hop-ipv4-resolved", 1),
            reading("lwaftr-01/next-hop-ipv4-resolved", 0),
            reading("lwaftr-00/path-mtus", 2),
            reading("lwaftr-01/path-mtus", 2),
            reading("lwaftr-x/in-ipv4-packets", 100),
            reading("lwaftrs/in-ipv4-packets", 100),
            reading("external/drop_missed", 2),
            reading("mirror/drop_missed", 100),
            reading("spread-external.00 -> lwaftr-00.external/drops", 3),
            reading("external.output -> spread-external.input/drops", 4),
            reading("lwaftr-00.external -> join-external.00/drops", 100),
        ]);
        let wanted = [
            ("in-ipv4-packets", 7),
            ("ingress-packet-drops", 9),
            ("next-hop-ipv4-resolved", 0),
            ("path-mtus", 2),
        ];
        assert_eq!(
            all,
            wanted.map(|(name, value)| (name.to_owned(), value)).into()
        );
        let one = of_all_workers(&[reading("lwaftr/in-ipv4-packets", 3)]);
        assert_eq!(one["in-ipv4-packets"], 3);
    }
}
