//! A client and a server in Python.

use carina_measure::results::Metric;

use super::{Job, Place, goodput, rate};
use crate::wrap::Work;
use crate::wrap::processes::words;

pub(super) fn server(place: Place<'_>) -> Vec<String> {
    let port = place.port.to_string();
    words([PYTHON, "-c", SERVER, place.address, &port])
}

pub(super) fn client(job: Job<'_>) -> Vec<String> {
    let letter = letter(job.work);
    let numbers = [u64::from(job.port), job.size, job.time_ns].map(|number| number.to_string());
    let [port, size, time] = numbers.each_ref().map(String::as_str);
    let mut client = words([PYTHON, "-c", CLIENT, job.host, port, letter, size, time]);
    client.extend(job.proxy.map(|port| port.to_string()));
    client
}

/// The letter of a work in the header of a connection.
pub(super) fn letter(work: Work) -> &'static str {
    match work {
        Work::RoundTrips | Work::StaticRoundTrips => ROUND_TRIPS,
        _ => BULK,
    }
}

/// What the numbers of a client mean.
pub(super) fn values(work: Work, printed: &str) -> Option<Vec<(Metric, f64)>> {
    let values: Vec<f64> = printed.split_whitespace().flat_map(str::parse).collect();
    match (letter(work), &values[..]) {
        (BULK, [bytes, ns]) if *ns > 0.0 => Some(vec![goodput(bytes * 8000.0 / ns)]),
        (ROUND_TRIPS, [mean, median, p99]) if *mean > 0.0 => Some(vec![
            rate(1e9 / mean),
            (Metric::RttUs, mean / 1000.0),
            (Metric::RttP50Us, median / 1000.0),
            (Metric::RttP99Us, p99 / 1000.0),
        ]),
        _ => None,
    }
}

/// Header of a connection on which the client sends and the server counts.
pub(super) const BULK: &str = "b";

/// Header of a connection on which each message is answered.
pub(super) const ROUND_TRIPS: &str = "r";

const PYTHON: &str = "/usr/bin/python3";

/// The server: `ADDRESS PORT`. It serves one connection after the other.
const SERVER: &str = r"
import socket, sys, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen(16)
buffer = memoryview(bytearray(1 << 20))
def read(connection, count):
    got = 0
    while got < count:
        more = connection.recv_into(buffer[got:count])
        if not more: return False
        got += more
    return True
def bulk(connection):
    total, first, last = 0, 0, 0
    while more := connection.recv_into(buffer):
        last = time.perf_counter_ns()
        first = first or last
        total += more
    connection.sendall(b'%d %d\n' % (total, last - first))
def round_trips(connection, size):
    while read(connection, size): connection.sendall(buffer[:size])
while True:
    connection, _ = listener.accept()
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if read(connection, 16):
            work, size = bytes(buffer[:1]), int(bytes(buffer[1:16]))
            if work == b'b': bulk(connection)
            else: round_trips(connection, size)
    except OSError: pass
    connection.close()
";

/// The client: `HOST PORT WORK SIZE NANOSECONDS [PROXY-PORT]`. It prints numbers: in bulk the bytes
/// and the time in which they arrived, otherwise mean, median and 99th percentile of round trips.
/// Times are in nanoseconds.
const CLIENT: &str = r"
import socket, sys, time
host, port, work = sys.argv[1], int(sys.argv[2]), sys.argv[3]
size, length = int(sys.argv[4]), int(sys.argv[5])
if len(sys.argv) > 6:
    connection = socket.create_connection(('127.0.0.1', int(sys.argv[6])))
    connection.sendall(b'CONNECT %s:%d HTTP/1.1\r\n\r\n' % (host.encode(), port))
    head = b''
    while not head.endswith(b'\r\n\r\n'):
        more = connection.recv(1)
        if not more: sys.exit('the proxy has closed: %r' % head)
        head += more
    if not head.startswith(b'HTTP/1.1 200'): sys.exit('the proxy refuses: %r' % head)
else:
    connection = socket.create_connection((host, port))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
connection.sendall(work.encode() + b'%15d' % size)
message, buffer = bytes(size), memoryview(bytearray(size))
end = time.perf_counter_ns() + length
if work == 'b':
    while time.perf_counter_ns() < end:
        for _ in range(16): connection.sendall(message)
    connection.shutdown(socket.SHUT_WR)
    print(connection.makefile().readline())
else:
    times, before = [], time.perf_counter_ns()
    while before < end:
        connection.sendall(message)
        got = 0
        while got < size:
            more = connection.recv_into(buffer[got:])
            if not more: sys.exit('the server has closed')
            got += more
        after = time.perf_counter_ns()
        times.append(after - before)
        before = after
    times.sort()
    print(sum(times) // len(times), times[len(times) // 2], times[len(times) * 99 // 100])
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_mean_what_the_work_says() {
        let bulk = values(Work::Bulk, "1000000 2000000\n\n");
        assert_eq!(bulk, Some(vec![(Metric::GoodputMbps, 4000.0)]));
        let trips = values(Work::StaticRoundTrips, "2000 1500 9000");
        let trips = trips.unwrap();
        assert_eq!(trips[0], (Metric::MsgsPerS, 500_000.0));
        assert_eq!(trips[2], (Metric::RttP50Us, 1.5));
        assert_eq!(values(Work::RoundTrips, "the server has closed"), None);
    }
}
