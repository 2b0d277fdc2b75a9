//! Attached descriptors that cannot be an end of a byte stream are refused.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use carina_api::ipc::{Mode, VERSION};
use carina_api::{ErrorCode, FlowSpec};
use carina_sys::{EventFd, socketpair_seqpacket, socketpair_stream};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use super::ends::Stream;
use crate::support::*;

/// Descriptors that the node must refuse, each with words of the refusal.
fn unfit() -> Vec<(Vec<OwnedFd>, &'static str)> {
    let stream = || socketpair_stream().unwrap().0;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let unconnected = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    );
    vec![
        (
            vec![std::fs::File::open("/dev/null").unwrap().into()],
            "is not a socket",
        ),
        (vec![EventFd::new().unwrap().into_fd()], "is not a socket"),
        (vec![std::io::pipe().unwrap().0.into()], "is not a socket"),
        (vec![listener.into()], "is a listening socket"),
        (vec![unconnected.unwrap()], "without a connection"),
        (
            vec![UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().into()],
            "SOCK_DGRAM",
        ),
        (vec![socketpair_seqpacket().unwrap().0], "SOCK_SEQPACKET"),
        (
            vec![stream(), stream(), stream()],
            "attaches 3 descriptors; at most 1",
        ),
    ]
}

#[test]
fn unfit_descriptors_are_refused_at_both_ends() {
    let house = House::new("unfit", "");
    let (server, caller) = (house.register("echo"), house.conn());
    for (fds, words) in unfit() {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let ask = allocate("echo", None, FlowSpec::reliable(), Mode::Stream);
        caller.say_attaching(&ask, &fds);
        let refusal = caller.error();
        assert_eq!(refusal.code, ErrorCode::BadRequest);
        assert!(refusal.message.contains(words), "{refusal}");
        caller.say(&ask);
        let number = server.flow_request_of(&caller).request;
        server.say_attaching(&accepted(number, Mode::Stream), &fds);
        let refusal = server.error();
        assert!(refusal.message.contains(words), "{refusal}");
        let refusal = caller.error();
        assert!(refusal.message.contains(words), "{refusal}");
    }
    assert!(house.control().flows().unwrap().is_empty());
}

#[test]
fn only_stream_mode_takes_a_descriptor() {
    let house = House::new("modes-fd", "");
    let (server, caller) = (house.register("echo"), house.conn());
    let (kept, attached) = socketpair_stream().unwrap();
    for mode in [Mode::Ring, Mode::Socket] {
        let ask = allocate("echo", None, FlowSpec::reliable(), mode);
        caller.say_attaching(&ask, &[attached.as_fd()]);
        let refusal = caller.error();
        assert_eq!(refusal.code, ErrorCode::BadRequest);
        assert!(
            refusal.message.contains(&format!("mode {mode}")),
            "{refusal}"
        );
        caller.say(&ask);
        let number = server.flow_request_of(&caller).request;
        server.say_attaching(&accepted(number, mode), &[attached.as_fd()]);
        for conn in [&server, &caller] {
            let refusal = conn.error();
            assert!(
                refusal.message.contains("only a request in mode stream"),
                "{refusal}"
            );
        }
    }
    let newcomer = house.conn();
    let (version, name, dif) = (VERSION, app("late"), None);
    let register = carina_api::ipc::Request::Register {
        version,
        name,
        dif,
        streams: false,
        shared: false,
    };
    newcomer.say_attaching(&register, &[attached.as_fd()]);
    assert_eq!(newcomer.error().code, ErrorCode::BadRequest);
    drop(attached);
    assert_eq!(
        Stream(kept).read(),
        Ok(Vec::new()),
        "the node keeps none of them"
    );
}

#[test]
fn a_flow_that_may_lose_bytes_is_no_stream() {
    let house = House::new("lossy", "");
    let (server, caller) = (house.register("echo"), house.conn());
    caller.say(&allocate(
        "echo",
        None,
        FlowSpec::unreliable(),
        Mode::Stream,
    ));
    assert!(caller.error().message.contains("mode stream needs a flow"));
    caller.say(&allocate("echo", None, FlowSpec::unreliable(), Mode::Ring));
    server.accept(server.flow_request_of(&caller).request, Mode::Stream);
    for conn in [&server, &caller] {
        let refusal = conn.error();
        assert!(refusal.message.contains("max_loss 10000"), "{refusal}");
    }
}

#[test]
fn the_node_keeps_no_socket_of_a_request_that_fails() {
    let house = House::new("leak", "");
    let (server, caller) = (house.register("echo"), house.conn());
    let closed = |kept, what: &str| assert_eq!(Stream(kept).read(), Ok(Vec::new()), "{what}");
    let ask = allocate("echo", None, FlowSpec::reliable(), Mode::Stream);
    let pair = || socketpair_stream().unwrap();

    let (kept, attached) = pair();
    let unknown = allocate("nobody", None, FlowSpec::reliable(), Mode::Stream);
    caller.say_attaching(&unknown, &[attached.as_fd()]);
    caller.error();
    drop(attached);
    closed(kept, "unknown name");

    let (kept, attached) = pair();
    caller.say_attaching(&ask, &[attached.as_fd()]);
    drop(attached);
    server.deny(server.flow_request_of(&caller).request, "no");
    caller.error();
    closed(kept, "denied");

    let (kept, attached) = pair();
    let gone = house.conn();
    gone.say_attaching(&ask, &[attached.as_fd()]);
    drop(attached);
    let number = server.flow_request_of(&gone).request;
    drop(gone);
    closed(kept, "the caller has ended");

    let (kept, attached) = pair();
    eventually("the request is withdrawn", || {
        house.control().flows().unwrap().is_empty()
    });
    server.say_attaching(&accepted(number, Mode::Stream), &[attached.as_fd()]);
    assert_eq!(server.error().code, ErrorCode::NotFound);
    drop(attached);
    closed(kept, "accepted too late");

    let (kept, attached) = pair();
    newcomer_that_says_nonsense(&house, &attached);
    drop(attached);
    closed(kept, "no request");
}

fn newcomer_that_says_nonsense(house: &House, attached: &OwnedFd) {
    let newcomer = house.conn();
    carina_sys::send_with_fds(&newcomer.0, b"nonsense", &[attached.as_fd()]).unwrap();
    assert_eq!(newcomer.error().code, ErrorCode::BadRequest);
}

#[test]
fn users_limit_of_flows_counts_streams() {
    let house = House::new("stream-limit", "[limits]\nflows_per_uid = 2\n");
    let (server, caller) = (house.register("echo"), house.conn());
    let ask = allocate("echo", None, FlowSpec::reliable(), Mode::Stream);
    let (_kept, attached) = socketpair_stream().unwrap();
    caller.say_attaching(&ask, &[attached.as_fd()]);
    server.accept(server.flow_request_of(&caller).request, Mode::Stream);
    let _flows = (caller.flow(), server.flow());
    caller.say_attaching(&ask, &[attached.as_fd()]);
    assert_eq!(caller.error().code, ErrorCode::LimitReached);
}
