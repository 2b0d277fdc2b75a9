//! The two programs, in Python. They know nothing of Carina.

/// A server: `PORT`. It says `ready`, and then serves one connection after the other.
pub(super) const SERVER: &str = r"
import socket, sys, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('0.0.0.0', int(sys.argv[1])))
listener.listen(16)
print('ready', flush=True)
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

/// A client: `HOST PORT WORK SIZE NANOSECONDS [PROXY-PORT]`. It prints numbers: in bulk the bytes
/// and the time in which they arrived, otherwise mean, median and 99th percentile of round trips.
/// Times are in nanoseconds.
pub(super) const CLIENT: &str = r"
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
