//! The clients in the guest: their commands, and what they print.

use serde_json::Value;

use super::Work;

/// Ports of the servers on the host. As wrapped servers, they are part of names.
pub(super) const IPERF3_PORT: u16 = 5201;
pub(super) const HTTP_PORT: u16 = 8080;
pub(super) const SSH_PORT: u16 = 2222;

/// Path of the key in the guest with which ssh logs in on the host.
pub(super) const SSH_KEY: &str = "/etc/carina-bench.key";

/// Where the client finds the servers, and what it gets from them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// Words in front of the command, such as `carina wrap `.
    pub(super) launcher: &'a str,
    /// Name or address of the host.
    pub(super) host: &'a str,
    /// Path of the file on the host.
    pub(super) file: &'a str,
    /// Number of bytes to transfer.
    pub(super) size: u64,
}

/// The shell command that does the work in the guest.
pub(super) fn command(work: Work, target: Target<'_>) -> String {
    let Target {
        launcher,
        host,
        file,
        size,
    } = target;
    let iperf3 = format!("{launcher}iperf3 --json -c {host} -p {IPERF3_PORT} -n {size}");
    match work {
        Work::Send => iperf3,
        Work::Receive => format!("{iperf3} --reverse"),
        Work::Http => {
            let name = file.rsplit('/').next().unwrap_or(file);
            format!(
                "{launcher}curl -sS -f -o /dev/null \
                 -w '%{{size_download}} %{{time_starttransfer}} %{{time_total}}' \
                 http://{host}:{HTTP_PORT}/{name}"
            )
        }
        Work::Ssh => ssh_command(target),
    }
}

/// ssh with a file of the host as its output. What the command prints is like what curl prints: the
/// size, and the time in seconds of the first byte and of the last. The kernel's clock of
/// `/proc/uptime` counts hundredths of a second.
fn ssh_command(target: Target<'_>) -> String {
    let Target {
        launcher,
        host,
        file,
        size,
    } = target;
    // Without `-n`, ssh would wait for the standard input of the guest's shell.
    format!(
        "set -o pipefail; {launcher}ssh -n -F /dev/null -i {SSH_KEY} -p {SSH_PORT} -o BatchMode=yes \
         -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR {host} \
         cat {file} | {{ dd of=/dev/null bs=1 count=1 2>/dev/null; read first _ </proc/uptime; \
         cat >/dev/null; read last _ </proc/uptime; echo {size} $first $last; }}"
    )
}

/// The goodput in 10⁶ bits per second from what a command that has succeeded printed; `None` if
/// that is not what its program prints. iperf3 stops when all bytes are sent, and counts those that
/// have arrived.
pub(super) fn goodput_mbps(work: Work, printed: &str) -> Option<f64> {
    let (bytes, seconds) = match work {
        Work::Send | Work::Receive => {
            let printed: Value = serde_json::from_str(printed).ok()?;
            let sum = &printed["end"]["sum_received"];
            (sum["bytes"].as_f64()?, sum["seconds"].as_f64()?)
        }
        Work::Http | Work::Ssh => {
            let values: Vec<f64> = printed.split_whitespace().flat_map(str::parse).collect();
            let [bytes, first, last] = values[..] else {
                return None;
            };
            (bytes, last - first)
        }
    };
    (bytes > 0.0 && seconds > 0.0).then(|| bytes * 8.0 / seconds / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_is_read_from_what_programs_print() {
        let iperf3 = r#"{"end": {"sum_received": {"seconds": 2.0, "bytes": 1000000}}}"#;
        assert_eq!(goodput_mbps(Work::Send, iperf3), Some(4.0));
        let refused = r#"{"start": {}, "error": "unable to connect: Connection refused"}"#;
        assert_eq!(goodput_mbps(Work::Send, refused), None);
        let curl = "1000000 0.500000 2.500000";
        assert_eq!(goodput_mbps(Work::Http, curl), Some(4.0));
        assert_eq!(goodput_mbps(Work::Ssh, "1000000 30.50 32.50"), Some(4.0));
    }
}
