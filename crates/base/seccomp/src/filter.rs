//! The filter: which system calls stop and wait for the supervisor.
//!
//! | call | stops when |
//! |---|---|
//! | `connect`, `bind`, `listen`, `accept`, `accept4` | always |
//! | `getsockname`, `getpeername` | always |
//! | `setsockopt`, `getsockopt` | a flow answers the option differently from an `AF_UNIX` socket |
//! | `sendto` | the call names an address, or `MSG_FASTOPEN` is set |
//! | `recvfrom` | the call asks for an address |
//! | `recvmsg`, `sendmmsg`, `recvmmsg` | always: addresses are in memory |
//! | `sendmsg` | always, but for the one by which [`spawn`](crate::spawn) passes the listener |
//! | `io_uring_setup`, x32, other architectures | never: the call fails with `ENOSYS` |
//! | all others | never |
//!
//! Calls that pass whatever their arguments cost nothing: the kernel finds them when the filter is
//! installed, and does not run the filter for them.

use libc::{c_int, c_long, sock_filter};

/// A system call that the filter stops, so that the supervisor decides about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `connect(2)`: connects a socket to an address.
    Connect,
    /// `bind(2)`: gives a socket a local address.
    Bind,
    /// `listen(2)`: lets a socket accept connections.
    Listen,
    /// `accept(2)`: accepts a connection, without flags.
    Accept,
    /// `accept4(2)`: accepts a connection, with flags.
    Accept4,
    /// `getsockname(2)`: asks for the socket's own address.
    LocalAddress,
    /// `getpeername(2)`: asks for the address of the other end.
    PeerAddress,
    /// `setsockopt(2)`: sets an option of a socket.
    SetOption,
    /// `getsockopt(2)`: asks for an option of a socket.
    Option,
    /// `sendto(2)` with an address, or with `MSG_FASTOPEN`.
    SendTo,
    /// `sendmsg(2)`: sends data, perhaps to an address.
    SendMessage,
    /// `sendmmsg(2)`: sends several messages.
    SendMessages,
    /// `recvfrom(2)` that asks for the sender's address.
    ReceiveFrom,
    /// `recvmsg(2)`: receives data, perhaps with the sender's address.
    ReceiveMessage,
    /// `recvmmsg(2)`: receives several messages.
    ReceiveMessages,
}

impl Call {
    /// Returns the call with this number; `None` for a call that the filter does not stop.
    pub(crate) fn of(number: c_int) -> Option<Call> {
        let number = c_long::from(number);
        CALLS
            .iter()
            .find(|(of_call, _)| *of_call == number)
            .map(|(_, call)| *call)
    }
}

/// The stopped calls, each with its number on this processor.
const CALLS: [(c_long, Call); 15] = [
    (libc::SYS_connect, Call::Connect),
    (libc::SYS_bind, Call::Bind),
    (libc::SYS_listen, Call::Listen),
    (libc::SYS_accept, Call::Accept),
    (libc::SYS_accept4, Call::Accept4),
    (libc::SYS_getsockname, Call::LocalAddress),
    (libc::SYS_getpeername, Call::PeerAddress),
    (libc::SYS_setsockopt, Call::SetOption),
    (libc::SYS_getsockopt, Call::Option),
    (libc::SYS_sendto, Call::SendTo),
    (libc::SYS_sendmsg, Call::SendMessage),
    (libc::SYS_sendmmsg, Call::SendMessages),
    (libc::SYS_recvfrom, Call::ReceiveFrom),
    (libc::SYS_recvmsg, Call::ReceiveMessage),
    (libc::SYS_recvmmsg, Call::ReceiveMessages),
];

/// Levels of socket options whose options are all stopped, because an `AF_UNIX` socket has none of
/// them.
const LEVELS: [c_int; 3] = [libc::IPPROTO_TCP, libc::IPPROTO_IP, libc::IPPROTO_IPV6];

/// Options of `SOL_SOCKET` for which `getsockopt` is stopped.
const READ: [c_int; 6] = [
    libc::SO_REUSEPORT,
    libc::SO_ERROR,
    libc::SO_TYPE,
    libc::SO_DOMAIN,
    libc::SO_PROTOCOL,
    libc::SO_ACCEPTCONN,
];

/// Options of `SOL_SOCKET` for which `setsockopt` is stopped.
const SET: [c_int; 2] = [libc::SO_REUSEPORT, libc::SO_INCOMING_CPU];

/// A seccomp filter, in the form in which the kernel takes it.
#[derive(Debug, Clone)]
pub struct Filter(pub(crate) Vec<sock_filter>);

impl Filter {
    /// Makes the filter that this module describes.
    pub fn of_socket_calls() -> Filter {
        let mut program = Program::default();
        program.load(ARCHITECTURE_AT);
        program.unless_equal_go(ARCHITECTURE, Target::NoSuchCall);
        program.load(NUMBER_AT);
        if cfg!(target_arch = "x86_64") {
            program.if_at_least_go(X32_FIRST, Target::NoSuchCall);
        }
        program.if_equal_go(libc::SYS_io_uring_setup as u32, Target::NoSuchCall);
        for (number, call) in CALLS {
            let target = match call {
                Call::SetOption => Target::SetOption,
                Call::Option => Target::Option,
                Call::SendTo => Target::SendTo,
                Call::SendMessage => Target::SendMessage,
                Call::ReceiveFrom => Target::ReceiveFrom,
                _ => Target::Notify,
            };
            program.if_equal_go(number as u32, target);
        }
        program.stop(RETURN_ALLOW);
        for (target, names) in [(Target::SetOption, &SET[..]), (Target::Option, &READ[..])] {
            program.place(target);
            program.load(argument_at(1));
            for level in LEVELS {
                program.if_equal_go(level as u32, Target::Notify);
            }
            program.unless_equal_go(libc::SOL_SOCKET as u32, Target::Allow);
            program.load(argument_at(2));
            for name in names {
                program.if_equal_go(*name as u32, Target::Notify);
            }
            program.stop(RETURN_ALLOW);
        }
        program.place(Target::SendMessage);
        program.load(argument_at(2));
        program.if_any_bit_go(PASSES, Target::Allow);
        program.stop(libc::SECCOMP_RET_USER_NOTIF);
        program.place(Target::SendTo);
        program.load(argument_at(3));
        program.if_any_bit_go(libc::MSG_FASTOPEN as u32, Target::Notify);
        program.place(Target::ReceiveFrom);
        for half in [0, 4] {
            // Both calls have the pointer to the address at the same place.
            program.load(argument_at(4) + half);
            program.unless_equal_go(0, Target::Notify);
        }
        program.stop(RETURN_ALLOW);
        program.place(Target::Allow);
        program.stop(RETURN_ALLOW);
        program.place(Target::Notify);
        program.stop(libc::SECCOMP_RET_USER_NOTIF);
        program.place(Target::NoSuchCall);
        program.stop(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
        Filter(program.finished())
    }
}

/// A place in the program to which earlier instructions jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    SetOption,
    Option,
    SendTo,
    SendMessage,
    ReceiveFrom,
    Allow,
    Notify,
    NoSuchCall,
}

/// Classic BPF (the kernel's *Linux Socket Filtering aka Berkeley Packet Filter*), with jumps to
/// places that come later.
#[derive(Default)]
struct Program {
    instructions: Vec<sock_filter>,
    jumps: Vec<(usize, Target, bool)>,
    places: Vec<(Target, usize)>,
}

impl Program {
    fn load(&mut self, offset: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    }

    fn stop(&mut self, value: u32) {
        self.push(libc::BPF_RET | libc::BPF_K, value);
    }

    fn if_equal_go(&mut self, value: u32, target: Target) {
        self.jump(libc::BPF_JEQ, value, target, true);
    }

    fn unless_equal_go(&mut self, value: u32, target: Target) {
        self.jump(libc::BPF_JEQ, value, target, false);
    }

    fn if_at_least_go(&mut self, value: u32, target: Target) {
        self.jump(libc::BPF_JGE, value, target, true);
    }

    fn if_any_bit_go(&mut self, bits: u32, target: Target) {
        self.jump(libc::BPF_JSET, bits, target, true);
    }

    fn jump(&mut self, test: u32, value: u32, target: Target, when: bool) {
        self.jumps.push((self.instructions.len(), target, when));
        self.push(libc::BPF_JMP | test | libc::BPF_K, value);
    }

    fn push(&mut self, code: u32, k: u32) {
        let (jt, jf) = (0, 0);
        let code = code as u16;
        self.instructions.push(sock_filter { code, jt, jf, k });
    }

    fn place(&mut self, target: Target) {
        self.places.push((target, self.instructions.len()));
    }

    fn finished(mut self) -> Vec<sock_filter> {
        for (from, target, when) in self.jumps {
            let place = self.places.iter().find(|(place, _)| *place == target);
            let distance = place.and_then(|(_, at)| u8::try_from(at - from - 1).ok());
            let distance = distance.expect("every target is placed, less than 256 further on");
            let instruction = &mut self.instructions[from];
            if when {
                instruction.jt = distance;
            } else {
                instruction.jf = distance;
            }
        }
        self.instructions
    }
}

/// Offset of the call's number in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;

/// Offset of the architecture in `struct seccomp_data`.
const ARCHITECTURE_AT: u32 = 4;

/// Returns the offset in `struct seccomp_data` of the lower half of an argument, which is all that
/// the kernel reads of an `int`.
const fn argument_at(index: u32) -> u32 {
    16 + 8 * index
}

/// `AUDIT_ARCH_*` of this processor (`linux/audit.h`): 64 bits, little-endian, machine of ELF.
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") {
    0xC000_00B7
} else {
    0xC000_003E
};

/// Numbers of the x32 ABI have this bit.
const X32_FIRST: u32 = 0x4000_0000;

const RETURN_ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// A flag of `sendmsg` that lets the call pass. Only receivers use it, and the kernel ignores it in
/// a sender. A program that sets it reaches the kernel's socket, as any program can that tries.
pub(crate) const PASSES: u32 = libc::MSG_ERRQUEUE as u32;

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = RETURN_ALLOW;
    const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
    const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

    /// Interprets the filter as the kernel does. Returns the filter's result for a call.
    fn verdict(architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = [number.to_ne_bytes(), architecture.to_ne_bytes()].concat();
        data.extend([0; 8]);
        data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
        let program = Filter::of_socket_calls().0;
        let (mut at, mut accumulator) = (0, 0u32);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            let value = &data[k as usize % data.len()..];
            let is_true = match u32::from(code) {
                0x20 => {
                    accumulator = u32::from_ne_bytes(value[..4].try_into().unwrap());
                    at += 1;
                    continue;
                }
                0x06 => return k,
                0x15 => accumulator == k,
                0x35 => accumulator >= k,
                0x45 => accumulator & k != 0,
                other => panic!("instruction {other:#x}"),
            };
            at += 1 + usize::from(if is_true { jt } else { jf });
        }
    }

    fn of_call(number: c_long, arguments: [u64; 6]) -> u32 {
        verdict(ARCHITECTURE, number as u32, arguments)
    }

    #[test]
    fn calls_that_name_addresses_stop_and_others_pass() {
        for (number, call) in CALLS {
            let always = ![Call::SetOption, Call::Option].contains(&call);
            let expected = if always { NOTIFY } else { ALLOW };
            assert_eq!(of_call(number, [99; 6]), expected, "{call:?}");
        }
        for number in 0..600 {
            let is_named = CALLS.iter().any(|(of_call, _)| *of_call == number);
            if !is_named && number != libc::SYS_io_uring_setup {
                assert_eq!(of_call(number, [u64::MAX; 6]), ALLOW, "{number}");
            }
        }
    }

    #[test]
    fn options_stop_by_level_and_name() {
        let option = |number, level: c_int, name: c_int| {
            of_call(number, [3, level as u64, name as u64, 0, 0, 0])
        };
        let (get, set) = (libc::SYS_getsockopt, libc::SYS_setsockopt);
        for (level, name) in [
            (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            (libc::IPPROTO_IP, libc::IP_TOS),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
        ] {
            assert_eq!(option(get, level, name), NOTIFY);
            assert_eq!(option(set, level, name), NOTIFY);
        }
        let at_socket = |number, name| option(number, libc::SOL_SOCKET, name);
        assert_eq!(at_socket(get, libc::SO_ERROR), NOTIFY);
        assert_eq!(at_socket(set, libc::SO_ERROR), ALLOW);
        assert_eq!(at_socket(set, libc::SO_REUSEPORT), NOTIFY);
        assert_eq!(at_socket(get, libc::SO_RCVBUF), ALLOW);
        assert_eq!(option(get, libc::SOL_UDP, libc::SO_ERROR), ALLOW);
        // The kernel reads an `int`: bits above it do not hide a call.
        let high = 1 << 32 | libc::SOL_SOCKET as u64;
        assert_eq!(of_call(get, [3, high, 4, 0, 0, 0]), NOTIFY);
    }

    #[test]
    fn sendmsg_stops_unless_it_passes_the_listener() {
        let flags = |flags: u32| of_call(libc::SYS_sendmsg, [3, 1, u64::from(flags), 0, 0, 0]);
        assert_eq!(flags(PASSES | libc::MSG_NOSIGNAL as u32), ALLOW);
        assert_eq!(flags(!PASSES), NOTIFY);
    }

    #[test]
    fn data_without_an_address_passes() {
        let flag = libc::MSG_FASTOPEN as u64;
        let (send, receive) = (libc::SYS_sendto, libc::SYS_recvfrom);
        assert_eq!(of_call(send, [3, 1, 2, flag | 1, 0, 16]), NOTIFY);
        assert_eq!(of_call(send, [3, flag, flag, 1, 0, 16]), ALLOW);
        assert_eq!(of_call(receive, [3, flag, flag, flag, 0, 16]), ALLOW);
        for pointer in [1, 1 << 32, u64::MAX] {
            assert_eq!(of_call(send, [3, 1, 2, 0, pointer, 16]), NOTIFY);
            assert_eq!(of_call(receive, [3, 1, 2, 0, pointer, 16]), NOTIFY);
        }
    }

    #[test]
    fn other_ways_into_the_kernel_are_closed() {
        assert_eq!(of_call(libc::SYS_io_uring_setup, [0; 6]), NO_SUCH_CALL);
        let (i386, number) = (0x4000_0003, libc::SYS_connect as u32);
        assert_eq!(verdict(i386, number, [0; 6]), NO_SUCH_CALL);
        if cfg!(target_arch = "x86_64") {
            let x32 = X32_FIRST | number;
            assert_eq!(verdict(ARCHITECTURE, x32, [0; 6]), NO_SUCH_CALL);
        }
    }
}
