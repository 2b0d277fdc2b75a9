//! iperf3: one connection on which the client sends.

use serde_json::Value;

use super::{Job, Place, seconds};
use crate::wrap::processes::words;

pub(super) fn server(place: Place<'_>) -> Vec<String> {
    let port = place.port.to_string();
    words(["iperf3", "-s", "-B", place.address, "-p", &port])
}

pub(super) fn client(job: Job<'_>) -> Vec<String> {
    let numbers = [job.port.to_string(), seconds(job.time_ns)];
    let size = job.size.to_string();
    let [port, time] = numbers.each_ref().map(String::as_str);
    words([
        "iperf3", "--json", "-c", job.host, "-p", port, "-t", time, "-l", &size,
    ])
}

/// The goodput of what has arrived, in 10⁶ bits per second.
pub(super) fn goodput_mbps(printed: &str) -> Option<f64> {
    let printed: Value = serde_json::from_str(printed).ok()?;
    let sum = &printed["end"]["sum_received"];
    let (bytes, seconds) = (sum["bytes"].as_f64()?, sum["seconds"].as_f64()?);
    (bytes > 0.0 && seconds > 0.0).then(|| bytes * 8.0 / seconds / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_is_that_of_the_receiver() {
        let printed = r#"{"end": {"sum_sent": {"seconds": 1.0, "bytes": 9e9},
            "sum_received": {"seconds": 2.0, "bytes": 1000000}}}"#;
        assert_eq!(goodput_mbps(printed), Some(4.0));
        let refused = r#"{"start": {}, "error": "unable to connect: Connection refused"}"#;
        assert_eq!(goodput_mbps(refused), None);
    }
}
