//! Requests of rtnetlink(7) about the frames at ports, with what tc(8) sends for the same.

use std::fmt;

use carina_netdev::netlink::{CREATE, REPLACE, attribute};

/// A change of what the kernel does with the frames at a port. Shown as the line of tc(8) for the
/// same change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortRequest {
    /// Name of the port.
    pub port: String,
    /// What changes.
    pub change: PortChange,
}

/// What changes at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortChange {
    /// The port can have filters from now on.
    Prepare,
    /// A filter redirects all frames that the port receives to port `to`, which sends them.
    Redirect { to: String },
    /// The filters of all frames that the port receives are removed.
    RemoveFilters,
    /// A token bucket limits the frames that the port sends to `bps` bits a second. It has `burst`
    /// bytes, and a queue of `queue` bytes. It replaces an earlier one.
    Limit { bps: u64, burst: u32, queue: u32 },
}

impl PortRequest {
    /// The kind, the flags and the body of the message. `port` is the index of the port. `to` is
    /// the index of the port to which frames are redirected; other changes do not use it.
    pub(super) fn message(&self, [port, to]: [u32; 2]) -> (u16, u16, Vec<u8>) {
        match self.change {
            PortChange::Prepare => {
                let mut body = header(port, CLSACT_HANDLE, CLSACT, 0);
                attribute(&mut body, TCA_KIND, b"clsact\0");
                (RTM_NEWQDISC, CREATE | REPLACE, body)
            }
            PortChange::Redirect { .. } => {
                let mut body = header(port, FILTER, INGRESS, of_filters());
                attribute(&mut body, TCA_KIND, b"u32\0");
                attribute(&mut body, TCA_OPTIONS, &redirection(to));
                (RTM_NEWTFILTER, CREATE, body)
            }
            PortChange::RemoveFilters => {
                (RTM_DELTFILTER, 0, header(port, 0, INGRESS, of_filters()))
            }
            PortChange::Limit { bps, burst, queue } => {
                let mut body = header(port, 0, ROOT, 0);
                attribute(&mut body, TCA_KIND, b"tbf\0");
                attribute(&mut body, TCA_OPTIONS, &bucket(bps, burst, queue));
                (RTM_NEWQDISC, CREATE | REPLACE, body)
            }
        }
    }
}

impl fmt::Display for PortRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = &self.port;
        match &self.change {
            PortChange::Prepare => write!(f, "qdisc replace dev {port} clsact"),
            PortChange::Redirect { to } => write!(
                f,
                "filter replace dev {port} ingress protocol all prio {PRIORITY} handle 800::800 \
                 u32 match u32 0 0 action mirred egress redirect dev {to}"
            ),
            PortChange::RemoveFilters => write!(
                f,
                "filter del dev {port} ingress protocol all prio {PRIORITY}"
            ),
            PortChange::Limit { bps, burst, queue } => write!(
                f,
                "qdisc replace dev {port} root tbf rate {bps}bit burst {burst} limit {queue}"
            ),
        }
    }
}

/// Family, padding, index, handle, parent, information (`struct tcmsg`).
fn header(port: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [port, handle, parent, info] {
        body.extend(word.to_ne_bytes());
    }
    body
}

/// The information in the header about filters: their priority, and the protocol of their frames.
fn of_filters() -> u32 {
    PRIORITY << 16 | u32::from(ETH_P_ALL.to_be())
}

/// The options of a filter that redirects all frames to a port.
fn redirection(to: u32) -> Vec<u8> {
    // `struct tc_u32_sel` with one key, whose mask matches everything: flags, shift, number of
    // keys, and zeros.
    let mut selector = vec![0; 16 + 16];
    (selector[0], selector[2]) = (TC_U32_TERMINAL, 1);
    // `struct tc_mirred`: index, capabilities, action, two counters, where to, index of the port.
    let words = [0, 0, TC_ACT_STOLEN, 0, 0, TCA_EGRESS_REDIR, to];
    let words: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    let mut parameters = Vec::new();
    attribute(&mut parameters, TCA_MIRRED_PARMS, &words);
    let mut action = Vec::new();
    attribute(&mut action, TCA_ACT_KIND, b"mirred\0");
    attribute(&mut action, TCA_ACT_OPTIONS, &parameters);
    let mut actions = Vec::new();
    attribute(&mut actions, FIRST_ACTION, &action);
    let mut options = Vec::new();
    attribute(&mut options, TCA_U32_SEL, &selector);
    attribute(&mut options, TCA_U32_ACT, &actions);
    options
}

/// The options of a token bucket.
fn bucket(bps: u64, burst: u32, queue: u32) -> Vec<u8> {
    let bytes_a_second = bps / 8;
    let word = u32::try_from(bytes_a_second).unwrap_or(u32::MAX);
    // `struct tc_tbf_qopt`: the rate, a rate of peaks that is not used, the queue, the time of the
    // burst, the MTU of peaks. The kernel computes the time from the attribute with the burst.
    let mut parameters = vec![0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
    parameters.extend(word.to_ne_bytes());
    parameters.extend([0; 12]);
    parameters.extend(queue.to_ne_bytes());
    parameters.extend([0; 8]);
    let mut options = Vec::new();
    attribute(&mut options, TCA_TBF_PARMS, &parameters);
    attribute(&mut options, TCA_TBF_BURST, &burst.to_ne_bytes());
    if u64::from(word) != bytes_a_second {
        attribute(&mut options, TCA_TBF_RATE64, &bytes_a_second.to_ne_bytes());
    }
    options
}

/// Priority of the filters.
const PRIORITY: u32 = 1;
const RTM_NEWQDISC: u16 = 36;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
/// Parents of what is made: TC_H_ROOT, TC_H_CLSACT, and the filters of received frames there.
const ROOT: u32 = 0xffff_ffff;
const CLSACT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// The handle `800::800` of a filter.
const FILTER: u32 = 0x8000_0800;
/// Frames of all protocols.
const ETH_P_ALL: u16 = 3;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TC_U32_TERMINAL: u8 = 1;
const FIRST_ACTION: u16 = 1;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
const TC_ACT_STOLEN: u32 = 4;
const TCA_EGRESS_REDIR: u32 = 1;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_LINKLAYER_ETHERNET: u8 = 1;

#[cfg(test)]
mod tests {
    use carina_namespaces::{Namespace, NamespaceAccess};

    use super::*;
    use crate::namespace::change_ports;

    fn request(port: &str, change: PortChange) -> PortRequest {
        PortRequest {
            port: port.to_owned(),
            change,
        }
    }

    /// What `tc` shows of two ports, without the handles that the kernel chooses.
    fn shown(namespace: &str) -> String {
        let lines = ["qdisc show", "filter show dev one ingress"].map(str::to_owned);
        let shown = NamespaceAccess::of_root().tc_lines(namespace, &lines);
        let shown = shown.unwrap();
        let words = shown.split(' ').scan("", |before, word| {
            let is_handle = *before == "tbf" && word.ends_with(':');
            *before = word;
            Some(if is_handle { "HANDLE:" } else { word })
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn kernel_makes_of_a_request_what_it_makes_of_the_line_of_tc() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: namespaces of this host need root");
            return;
        }
        let names = ["tc", "rt"].map(|by| format!("cv-by-{by}-{}", std::process::id()));
        let namespaces = names.each_ref().map(|name| Namespace::new(name).unwrap());
        let veth = "link add one index 20 type veth peer name two index 21";
        for namespace in &namespaces {
            namespace.ip(&veth.split(' ').collect::<Vec<_>>()).unwrap();
        }
        let limit = |bps| PortChange::Limit {
            bps,
            burst: 200_000,
            queue: 5_000_000,
        };
        let to = "two".to_owned();
        let (mut before, mut all) = (String::new(), String::new());
        for changes in [
            vec![limit(10_000_000_000), PortChange::Prepare],
            vec![PortChange::Redirect { to: to.clone() }],
            // A rate in bytes a second that 32 bits do not hold; and everything a second time.
            vec![
                limit(100_000_000_000),
                PortChange::Prepare,
                PortChange::Redirect { to },
            ],
            vec![PortChange::RemoveFilters],
        ] {
            let requests: Vec<PortRequest> = changes
                .into_iter()
                .map(|change| request("one", change))
                .collect();
            let lines: Vec<String> = requests.iter().map(PortRequest::to_string).collect();
            NamespaceAccess::of_root()
                .tc_batch(&names[0], &lines)
                .unwrap();
            change_ports(&names[1], &requests).unwrap();
            let [by_tc, by_us] = names.each_ref().map(|name| shown(name));
            assert_eq!(by_tc, by_us);
            assert_ne!(by_us, before);
            all.push_str(&by_us);
            before = by_us;
        }
        assert!(all.contains("Redirect to device two"), "{all}");
        assert!(!before.contains("Redirect"), "{before}");
        let absent = request("three", PortChange::Prepare);
        let error = change_ports(&names[1], &[absent]).unwrap_err().to_string();
        assert!(error.contains("three"), "{error}");
        // The kernel refuses a filter without the place for filters.
        let unprepared = PortChange::Redirect { to: "one".into() };
        let refused = change_ports(&names[1], &[request("two", unprepared)]);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("redirect dev one"), "{error}");
    }
}
