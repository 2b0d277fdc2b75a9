//! redis-server and redis-benchmark: short commands and answers.

use super::{Job, Place};
use crate::wrap::Work;
use crate::wrap::processes::words;

pub(super) fn server(place: Place<'_>) -> Vec<String> {
    let port = place.port.to_string();
    let directory = place.directory.to_string_lossy();
    words([
        "redis-server",
        "--bind",
        place.address,
        "--port",
        &port,
        "--dir",
        &directory,
        "--save",
        "",
        "--appendonly",
        "no",
        "--protected-mode",
        "no",
    ])
}

pub(super) fn client(job: Job<'_>) -> Vec<String> {
    let numbers = [
        job.port.to_string(),
        job.size.to_string(),
        job.count.to_string(),
    ];
    let [port, size, count] = numbers.each_ref().map(String::as_str);
    let mut client = words([
        "redis-benchmark",
        "--csv",
        "-t",
        "set",
        "-h",
        job.host,
        "-p",
        port,
        "-d",
        size,
        "-n",
        count,
    ]);
    match job.work {
        Work::Connections => client.extend(words(["-k", "0", "-c", "1"])),
        Work::Redis { pipeline } => {
            client.extend(words(["-c", "50", "-P", &pipeline.to_string()]));
        }
        _ => {}
    }
    client
}

/// Commands a second. redis-benchmark prints `"SET","63291.14",...`.
pub(super) fn per_second(printed: &str) -> Option<f64> {
    let line = printed.lines().find_map(|line| line.strip_prefix(MARK))?;
    let value = line.split('"').next()?.parse().ok()?;
    (value > 0.0).then_some(value)
}

const MARK: &str = "\"SET\",\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_the_second_column() {
        let printed = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"63291.14\",\"0.399\"\n";
        assert_eq!(per_second(printed), Some(63_291.14));
        assert_eq!(per_second("Could not connect to Redis\n"), None);
    }
}
