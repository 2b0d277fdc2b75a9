//! `setsockopt` and `getsockopt` on a flow.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::calls::take_error;
use crate::mark::Mark;

/// Returns the value of an option of a flow, as `getsockopt` on a TCP socket would.
///
/// # Errors
/// The kernel's refusal.
pub fn value(socket: BorrowedFd<'_>, mark: Mark, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
    if let Some(bit) = remembered(level, name) {
        return Ok(i32::from(mark.has(bit)).to_ne_bytes().to_vec());
    }
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_TYPE) if mark.has(Mark::DATAGRAMS) => libc::SOCK_DGRAM,
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) if mark.has(Mark::DATAGRAMS) => libc::IPPROTO_UDP,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) if mark.has(Mark::IPV6) => libc::AF_INET6,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => libc::AF_INET,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => mark.has(Mark::ACCEPTING).into(),
        (libc::SOL_SOCKET, _) => take_error(socket, mark)?.map_or(0, Errno::raw_os_error),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => SEGMENT_BYTES,
        (libc::IPPROTO_TCP, libc::TCP_INFO) => {
            let mut info = vec![0; size_of::<libc::tcp_info>()];
            info[0] = ESTABLISHED;
            return Ok(info);
        }
        // No IP options: OpenSSH refuses a connection that has options.
        (libc::IPPROTO_IP, IP_OPTIONS) => return Ok(Vec::new()),
        _ => 0,
    };
    Ok(number.to_ne_bytes().to_vec())
}

/// Sets an option of a flow. The mark remembers `TCP_NODELAY`, `SO_REUSEPORT` and `IPV6_V6ONLY`.
/// Any other option is accepted without effect, because a flow has neither segments nor packets of
/// its own. `read` returns the first four bytes of the value.
///
/// # Errors
/// `EINVAL` for a value of less than 4 bytes; the error of `read`.
pub fn set(
    socket: BorrowedFd<'_>,
    mark: Mark,
    [level, name, length]: [i32; 3],
    read: impl FnOnce() -> Result<[u8; 4], Errno>,
) -> Result<(), Errno> {
    if level == libc::SOL_SOCKET && name != libc::SO_REUSEPORT {
        return Ok(());
    }
    if length < size_of::<i32>() as i32 {
        return Err(Errno::INVAL);
    }
    if let Some(bit) = remembered(level, name) {
        let is_set = i32::from_ne_bytes(read()?) != 0;
        mark.without(bit).with_if(is_set, bit).set(socket)?;
    }
    Ok(())
}

/// Returns the bit of the mark that remembers an option which `AF_UNIX` sockets do not have.
fn remembered(level: i32, name: i32) -> Option<Mark> {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Some(Mark::NODELAY),
        (libc::SOL_SOCKET, libc::SO_REUSEPORT) => Some(Mark::REUSEPORT),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => Some(Mark::V6ONLY),
        _ => None,
    }
}

/// `IP_OPTIONS` of Linux, which the crate `libc` does not have.
const IP_OPTIONS: i32 = 4;

/// `TCP_ESTABLISHED` in `tcpi_state`.
const ESTABLISHED: u8 = 1;

/// The maximum segment size that TCP has on loopback; a flow, which has none, reports this one.
const SEGMENT_BYTES: i32 = 65_483;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn flow_answers_options_as_tcp_does() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let socket = socket.as_fd();
        Mark::IPV6.set(socket).unwrap();
        let get = |level, name| value(socket, Mark::of(socket).unwrap(), level, name).unwrap();
        let number = |number: i32| number.to_ne_bytes().to_vec();
        let no_delay = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
        assert_eq!(
            get(libc::SOL_SOCKET, libc::SO_DOMAIN),
            number(libc::AF_INET6)
        );
        assert_eq!(get(libc::SOL_SOCKET, libc::SO_ERROR), number(0));
        assert_eq!(get(no_delay.0, no_delay.1), number(0));
        let set_to = |length, on: i32| {
            let mark = Mark::of(socket).unwrap();
            let options = [no_delay.0, no_delay.1, length];
            set(socket, mark, options, || Ok(on.to_ne_bytes()))
        };
        assert_eq!(set_to(3, 1), Err(Errno::INVAL));
        assert_eq!(set_to(4, 1), Ok(()));
        assert_eq!(get(no_delay.0, no_delay.1), number(1));
        assert_eq!(get(libc::IPPROTO_TCP, libc::TCP_INFO)[0], 1);
    }
}
