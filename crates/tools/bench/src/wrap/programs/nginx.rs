//! nginx and wrk: a file, again and again on 16 connections.

use std::path::Path;

use super::{Job, Place, seconds};
use crate::error::{Attempt, Result};
use crate::wrap::processes::words;

/// The command of the server, whose settings and files are in its directory.
pub(super) fn server(place: Place<'_>) -> Result<Vec<String>> {
    let Place {
        directory,
        address,
        port,
        ..
    } = place;
    let path = directory.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {path}/{name};\n"))
        .concat();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {path}/pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\naccess_log off;\nkeepalive_requests 1000000000;\n{temporary}\
         server {{\nlisten {address}:{port};\nroot {path};\n}}\n}}\n"
    );
    let settings = directory.join("nginx.conf");
    std::fs::write(&settings, text).attempt("writing the settings of nginx")?;
    let [path, settings] = [directory, &settings].map(|path| path.to_string_lossy());
    Ok(words([
        "nginx", "-e", "stderr", "-p", &path, "-c", &settings,
    ]))
}

/// Makes the file of `size` bytes in the server's directory.
pub(super) fn make_file(directory: &Path, size: u64) -> Result<()> {
    let file = directory.join(size.to_string());
    if file.exists() {
        return Ok(());
    }
    std::fs::write(file, vec![b'x'; size as usize]).attempt("writing a file for nginx")
}

pub(super) fn client(job: Job<'_>) -> Vec<String> {
    let time = seconds(job.time_ns);
    let url = format!("http://{}:{}/{}", job.host, job.port, job.size);
    words(["wrk", "-t", "1", "-c", "16", "-d", &time, &url])
}

/// Requests a second; `None` if answers were errors.
pub(super) fn per_second(printed: &str) -> Option<f64> {
    if FAULTS.iter().any(|fault| printed.contains(fault)) {
        return None;
    }
    let rate = |line: &str| line.strip_prefix("Requests/sec:")?.trim().parse().ok();
    printed.lines().find_map(rate).filter(|rate| *rate > 0.0)
}

/// What wrk prints if connections or answers fail.
const FAULTS: [&str; 2] = ["Socket errors", "Non-2xx"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_counts_only_without_faults() {
        let good = "  1 threads and 16 connections\nRequests/sec:  17870.71\n";
        assert_eq!(per_second(good), Some(17_870.71));
        let bad = format!("  Non-2xx or 3xx responses: 9\n{good}");
        assert_eq!(per_second(&bad), None);
        assert_eq!(per_second("unable to connect"), None);
    }
}
