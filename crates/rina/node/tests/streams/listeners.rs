//! Registrations for which the node accepts every flow itself: listening sockets of programs.

use std::os::fd::AsFd;

use carina_api::ErrorCode;
use carina_api::ipc::{self, Reply, Request};
use carina_sys::socketpair_stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_error};

use super::ends::Stream;
use super::*;

fn register(conn: &Conn, name: &str, shared: bool) -> Option<Reply> {
    conn.say(&Request::Register {
        version: ipc::VERSION,
        name: app(name),
        dif: None,
        streams: true,
        shared,
    });
    conn.hear().map(|(reply, _)| reply)
}

/// A registration that listens.
fn listener(house: &House, name: &str, shared: bool) -> Conn {
    let conn = house.conn();
    let reply = register(&conn, name, shared);
    assert!(matches!(reply, Some(Reply::Registered(_))), "{reply:?}");
    conn.say(&Request::Listen {});
    conn
}

fn connect(house: &House, name: &str) -> (Conn, Stream) {
    let caller = house.conn();
    let (kept, attached) = socketpair_stream().unwrap();
    let request = allocate(name, None, FlowSpec::reliable(), Mode::Stream);
    caller.say_attaching(&request, &[attached.as_fd()]);
    (caller, Stream(kept))
}

fn accept(listener: &Conn) -> Stream {
    Stream(listener.flow().socket.unwrap())
}

#[test]
fn every_flow_is_one_message_with_the_socket_itself() {
    let house = House::new("listener", "");
    let listener = listener(&house, "web:80", false);
    for turn in 0..3_u8 {
        let (caller, kept) = connect(&house, "web:80");
        let given = accept(&listener);
        assert!(caller.flow().socket.is_none());
        kept.write_all(&[turn]);
        assert_eq!(given.read(), Ok(vec![turn]));
        drop(kept);
        assert_eq!(given.read(), Ok(Vec::new()));
    }
    let unspecific = allocate("web:80", None, FlowSpec::unreliable(), Mode::Ring);
    let caller = house.conn();
    caller.say(&unspecific);
    assert!(
        caller
            .error()
            .message
            .contains("loses and reorders nothing")
    );
}

#[test]
fn flows_are_refused_until_the_program_listens() {
    let house = House::new("bound", "");
    let bound = house.conn();
    assert!(matches!(
        register(&bound, "web:80", false),
        Some(Reply::Registered(_))
    ));
    let (caller, _kept) = connect(&house, "web:80");
    let refusal = caller.error();
    assert_eq!(refusal.code, ErrorCode::FlowDenied);
    assert!(
        refusal.message.contains("web:80 does not listen"),
        "{refusal}"
    );
    bound.say(&Request::Listen {});
    // One connection's messages have no order with another's: what is registered answers first.
    let answered = register(&bound, "web:81", false);
    assert!(matches!(answered, Some(Reply::Error(_))), "{answered:?}");
    let (caller, _kept) = connect(&house, "web:80");
    accept(&bound);
    caller.flow();
    let asked = house.register("asked");
    asked.say(&Request::Listen {});
    assert!(
        asked
            .error()
            .message
            .contains("only a registration with \"streams\" can listen")
    );
}

#[test]
fn ring_and_stream_of_another_system_reach_a_listener() {
    for net in [Net::over_shared_memory("far"), Net::dif("far-dif")] {
        let listener = listener(net.server_house(), "web:80", false);
        eventually("the name is known", || {
            let caller = net.caller_house().conn();
            let (kept, attached) = socketpair_stream().unwrap();
            let request = allocate(
                "web:80",
                Some(net.dif_name()),
                FlowSpec::reliable(),
                Mode::Stream,
            );
            caller.say_attaching(&request, &[attached.as_fd()]);
            if !matches!(caller.hear(), Some((Reply::Flow(_), _))) {
                return false;
            }
            let (kept, given) = (Stream(kept), accept(&listener));
            kept.write_all(b"far");
            kept.shutdown(Shutdown::Write);
            assert_eq!(given.read_to_end(), Ok(b"far".to_vec()));
            true
        });
    }
}

#[test]
fn shared_registrations_take_turns_and_outlive_each_other() {
    let house = House::new("shared", "");
    let mut listeners: Vec<Conn> = (0..3).map(|_| listener(&house, "web:80", true)).collect();
    let alone = house.conn();
    let refused = register(&alone, "web:80", false);
    assert!(
        matches!(&refused, Some(Reply::Error(refusal))
        if refusal.error.code == ErrorCode::DuplicateName),
        "{refused:?}"
    );
    while !listeners.is_empty() {
        for _ in 0..2 {
            let calls: Vec<_> = listeners
                .iter()
                .map(|_| connect(&house, "web:80"))
                .collect();
            let given: Vec<_> = listeners.iter().map(accept).collect();
            calls.iter().for_each(|(caller, _)| drop(caller.flow()));
            drop((calls, given));
        }
        // The first is the one that is registered in the DIF.
        listeners.remove(0);
        let left = listeners.len();
        eventually("the node knows", || {
            let apps = house.control().apps().unwrap();
            apps.iter()
                .filter(|app| app.name.as_str() == "web:80")
                .count()
                == left
        });
    }
    let (caller, _kept) = connect(&house, "web:80");
    assert_eq!(caller.error().code, ErrorCode::UnknownName);
}

#[test]
fn listener_that_does_not_read_stays_and_refuses() {
    let house = House::new("unread", "");
    let listener = listener(&house, "web:80", false);
    let mut waiting = Vec::new();
    let refusal = loop {
        let (caller, kept) = connect(&house, "web:80");
        match caller.hear() {
            Some((Reply::Flow(_), _)) => waiting.push(kept),
            Some((Reply::Error(refusal), _)) => break refusal.error,
            other => panic!("{other:?}"),
        }
        assert!(waiting.len() < 10_000);
    };
    assert!(
        refusal.message.contains("does not read the flows"),
        "{refusal}"
    );
    assert!(waiting.len() > 16, "{} flows waited", waiting.len());
    for kept in &waiting {
        kept.write_all(b"x");
        assert_eq!(accept(&listener).read(), Ok(b"x".to_vec()));
    }
    let (caller, _kept) = connect(&house, "web:80");
    accept(&listener);
    caller.flow();
}

/// A socket that is unwritable until its flow is there.
fn filled() -> (Stream, std::os::fd::OwnedFd, u32) {
    let (kept, attached) = socketpair_stream().unwrap();
    set_socket_send_buffer_size(&kept, 0).unwrap();
    let kept = Stream(kept);
    let mut filler = 0;
    while events(&kept).contains(PollFlags::OUT) {
        kept.write_all(b"\0");
        filler += 1;
    }
    (kept, attached, filler)
}

fn events(of: &Stream) -> PollFlags {
    let mut fds = [PollFd::new(&of.0, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).unwrap();
    fds[0].revents()
}

fn detached(name: &str, dif: &str, filler: u32) -> Request {
    let mut request = allocate(name, Some(dif), FlowSpec::reliable(), Mode::Stream);
    if let Request::Allocate {
        filler: asked,
        detached,
        ..
    } = &mut request
    {
        (*asked, *detached) = (filler, true);
    }
    request
}

#[test]
fn detached_request_makes_the_socket_writable_in_the_end() {
    for net in Net::all("detached") {
        let (kept, attached, filler) = filled();
        let caller = net.caller_house().conn();
        caller.say_attaching(
            &detached("server", net.dif_name(), filler),
            &[attached.as_fd()],
        );
        drop((caller, attached));
        let request = net.server().flow_request().request;
        assert!(!events(&kept).contains(PollFlags::OUT), "{net:?}");
        net.server().accept(request, Mode::Stream);
        let given = Stream(net.server().flow().socket.unwrap());
        eventually("the socket is writable", || events(&kept) == PollFlags::OUT);
        kept.write_all(b"first");
        assert_eq!(given.read(), Ok(b"first".to_vec()), "{net:?}");
        given.write_all(b"answer");
        assert_eq!(kept.read(), Ok(b"answer".to_vec()), "{net:?}");
    }
}

#[test]
fn connection_closes_with_the_flow_if_asked_to() {
    for asked in [false, true] {
        let net = Net::local("closes");
        let mut request = allocate(
            "server",
            Some(net.dif_name()),
            FlowSpec::reliable(),
            Mode::Ring,
        );
        if let Request::Allocate { closes, .. } = &mut request {
            *closes = asked;
        }
        let caller = net.caller_house().conn();
        caller.say(&request);
        let number = net.server().flow_request_of(&caller).request;
        net.server().accept(number, Mode::Ring);
        let _flow = caller.flow();
        if asked {
            assert!(caller.hear().is_none(), "the node has closed it");
        } else {
            caller.say(&Request::Listen {});
            caller.error();
        }
    }
}

#[test]
fn refused_detached_request_resets_the_socket() {
    for net in Net::all("detached-refused") {
        let (kept, attached, filler) = filled();
        let caller = net.caller_house().conn();
        caller.say_attaching(
            &detached("server", net.dif_name(), filler),
            &[attached.as_fd()],
        );
        drop((caller, attached));
        let request = net.server().flow_request().request;
        net.server().deny(request, "no");
        eventually("the socket is reset", || {
            events(&kept).contains(PollFlags::ERR)
        });
        assert_eq!(
            socket_error(&kept.0).unwrap(),
            Err(Errno::CONNRESET),
            "{net:?}"
        );
    }
}

#[test]
fn filler_without_a_socket_or_beyond_the_limit_is_refused() {
    let house = House::new("filler", "");
    let caller = house.conn();
    caller.say(&detached("server", "local", 1));
    assert!(caller.error().message.contains("has 1 bytes of filler"));
    let (_kept, attached) = socketpair_stream().unwrap();
    caller.say_attaching(&detached("server", "local", 65), &[attached.as_fd()]);
    assert!(caller.error().message.contains("at most 64"));
}
