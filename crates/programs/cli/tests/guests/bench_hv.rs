//! Test of `carina bench hv` with its systems in one boot of one VM.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::house::{CARINA, told};

#[test]
fn flows_of_all_devices_are_measured_beside_bare_rings() {
    let mut command = Command::new(CARINA);
    command.args(["--json", "bench", "hv", "--runs", "1", "--time", "500ms"]);
    command.args([
        "--sizes",
        "64,4000,1M",
        "--systems",
        "carina,ivshmem-plain,virtqueue,limit",
    ]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["failures"], Value::Null);
    let rows = printed["rows"].as_array().unwrap();
    for system in ["carina", "ivshmem-plain", "virtqueue", "limit"] {
        let measured = |case: &str, metric: &str| {
            let is_wanted = |row: &&Value| {
                row["system"] == system && row["case"] == case && row["metric"] == metric
            };
            let rows = rows.iter().filter(is_wanted);
            let size = |row: &Value| {
                let sdu = row["sdu"].as_u64().unwrap();
                // Of the longest SDUs only one may arrive in time, and only SDUs after the first
                // one count.
                assert!(
                    sdu == 1 << 20 || row["median"].as_f64() > Some(0.0),
                    "{row}"
                );
                sdu
            };
            rows.map(size).collect::<Vec<u64>>()
        };
        // The longest SDU does not fit into a bare ring.
        let sizes = match system {
            "limit" => vec![64, 4000],
            _ => vec![64, 4000, 1 << 20],
        };
        assert_eq!(measured("guest-to-host", "goodput_mbps"), sizes, "{system}");
        assert_eq!(measured("host-to-guest", "goodput_mbps"), sizes, "{system}");
        assert_eq!(measured("echo", "rtt_us"), [64, 1500, 4000, 65_000]);
    }
    let notes = printed["notes"].as_array().unwrap().iter();
    let judged = notes.filter(|note| note.as_str().unwrap().contains(" x limit "));
    assert_eq!(judged.count(), 12);
}
