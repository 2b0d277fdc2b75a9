//! Flows in stream mode: which sockets the applications have, how each direction ends, and what the
//! applications see after a failure.
#![allow(missing_docs, clippy::unwrap_used)]

mod ends;
mod hostile;
mod listeners;

use std::os::fd::AsFd;
use std::thread;

use carina_api::FlowSpec;
use carina_api::ipc::Mode;
use carina_engine::counters::{self, Kind, Value};
use carina_sys::socketpair_stream;
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::Shutdown;

use self::ends::{Attach, Net, Stream, tcp_pair};
use crate::support::*;

const ATTACHES: [Attach; 3] = [Attach::Nothing, Attach::Unix, Attach::Tcp];

fn every_mix() -> impl Iterator<Item = [Attach; 2]> {
    ATTACHES.into_iter().flat_map(|a| ATTACHES.map(|b| [a, b]))
}

#[test]
fn each_direction_ends_by_itself_in_every_mix_of_ends() {
    for net in Net::all("mix") {
        for mix in every_mix() {
            for caller_ends_first in [true, false] {
                let what = format!("{mix:?} over {net:?}, caller first: {caller_ends_first}");
                let [caller, server] = net.stream(mix);
                let (first, second) = if caller_ends_first {
                    (caller, server)
                } else {
                    (server, caller)
                };
                first.write_all(b"a question");
                first.shutdown(Shutdown::Write);
                assert_eq!(second.read_to_end(), Ok(b"a question".to_vec()), "{what}");
                second.write_all(b"an answer");
                second.shutdown(Shutdown::Write);
                assert_eq!(first.read_to_end(), Ok(b"an answer".to_vec()), "{what}");
                drop((first, second));
                net.no_flow_is_left(&what);
            }
        }
    }
}

#[test]
fn bytes_pass_both_ways_at_once_unharmed() {
    let bytes = 64 << 20;
    for net in Net::all("bulk") {
        let [caller, server] = net.stream([Attach::Unix, Attach::Tcp]);
        let (request, response) = (content(bytes, 1), content(bytes, 2));
        thread::scope(|scope| {
            for (end, sent, expected) in [
                (&caller, &request, &response),
                (&server, &response, &request),
            ] {
                scope.spawn(move || {
                    end.write_all(sent);
                    end.shutdown(Shutdown::Write);
                });
                scope.spawn(move || assert!(end.read_to_end().as_ref() == Ok(expected)));
            }
        });
    }
}

#[test]
fn relays_take_turns_on_as_many_threads_as_processors() {
    let net = Net::local("turns");
    let engines = || {
        let rows = counters::read(&net.caller_house().dir().path().join("counters")).unwrap();
        rows.into_iter().filter(|row| row.kind == Kind::Engine)
    };
    assert_eq!(engines().count(), 1);
    let threads = carina_sys::cpus_allowed().min(8);
    let streams: Vec<_> = (0..2 * threads)
        .map(|_| net.stream([Attach::Tcp, Attach::Tcp]))
        .collect();
    for (number, [caller, server]) in (0..).zip(&streams) {
        let (request, response) = (content(100_000, number), content(100_000, number + 100));
        for (from, to, bytes) in [(caller, server, &request), (server, caller, &response)] {
            from.write_all(bytes);
            from.shutdown(Shutdown::Write);
            assert!(to.read_to_end().as_ref() == Ok(bytes), "stream {number}");
        }
    }
    assert_eq!(engines().count(), threads);
    assert!(engines().all(|row| row.get(Value::Breaths) > 0));
    drop(streams);
    net.no_flow_is_left("many relays");
}

#[test]
fn attached_socket_itself_is_given_to_the_other_application() {
    let net = Net::local("itself");
    for attach_at in [0, 1] {
        for of_tcp in [false, true] {
            let (kept, attached) = if of_tcp {
                tcp_pair()
            } else {
                socketpair_stream().unwrap()
            };
            let inode = fstat(&attached).unwrap().st_ino;
            let mut attachments = [None, None];
            attachments[attach_at] = Some(attached);
            let mut taken = net.allocate(attachments).unwrap();
            assert!(taken[attach_at].socket.is_none());
            let given = taken[1 - attach_at].socket.take().unwrap();
            assert_eq!(fstat(&given).unwrap().st_ino, inode);
            let flows = net.caller_house().control().flows().unwrap();
            assert_eq!((flows.len(), flows[0].direct), (1, true), "{flows:?}");
            assert_eq!(flows[0].mode, Mode::Stream);
            let (kept, given) = (Stream(kept), Stream(given));
            kept.write_all(b"direct");
            assert_eq!(given.read(), Ok(b"direct".to_vec()));
            drop(given);
            assert_eq!(kept.read(), Ok(Vec::new()), "the node has kept a copy");
            net.no_flow_is_left("the given socket is closed");
        }
    }
}

#[test]
fn a_reset_passes_to_the_other_end_behind_the_bytes() {
    for net in Net::all("reset") {
        let [caller, server] = net.stream([Attach::Tcp, Attach::Tcp]);
        caller.write_all(b"before");
        assert_eq!(server.read(), Ok(b"before".to_vec()));
        caller.reset();
        assert_eq!(server.read(), Err(Errno::CONNRESET), "{net:?}");
        drop(server);
        let [caller, server] = net.stream([Attach::Nothing, Attach::Tcp]);
        server.write_all(b"before");
        assert_eq!(caller.read(), Ok(b"before".to_vec()));
        server.reset();
        // If both applications are on one system, the caller has the TCP socket itself.
        let is_end = match caller.read() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => error == Errno::CONNRESET,
        };
        assert!(is_end, "{net:?}");
        eventually("writing fails", || {
            caller.write(b"late") == Err(Errno::PIPE)
        });
        drop(caller);
        net.no_flow_is_left("after the reset");
    }
}

#[test]
fn an_application_that_dies_unread_resets_the_other_end() {
    for net in Net::all("death") {
        let [caller, server] = net.stream([Attach::Tcp, Attach::Nothing]);
        server.write_all(b"hello");
        assert_eq!(caller.read(), Ok(b"hello".to_vec()));
        caller.write_all(b"nobody reads this");
        assert!(readable(&server.0, 60_000));
        // The kernel closes the socket like this when a program is killed.
        drop(server);
        assert_eq!(caller.read(), Err(Errno::CONNRESET), "{net:?}");
        drop(caller);
        net.no_flow_is_left("after the death");
    }
}

#[test]
fn a_ring_that_closes_ends_the_stream_behind_its_bytes() {
    for net in Net::all("rings") {
        for attach in ATTACHES {
            let (mut ring, stream) = net.ring_and_stream(attach);
            ring.send(b"one, ");
            ring.send(b"two");
            ring.close();
            assert_eq!(stream.read_to_end(), Ok(b"one, two".to_vec()), "{net:?}");
            drop(stream);
            net.no_flow_is_left("after the ring closed");
        }
    }
}

#[test]
fn the_empty_sdu_ends_a_direction_between_ring_and_stream() {
    for net in Net::all("empty") {
        for attach in ATTACHES {
            let (mut ring, stream) = net.ring_and_stream(attach);
            ring.send(b"question");
            ring.send(b"");
            assert_eq!(stream.read_to_end(), Ok(b"question".to_vec()), "{net:?}");
            stream.write_all(b"answer");
            stream.shutdown(Shutdown::Write);
            assert_eq!(ring.recv().as_deref(), Some(&b"answer"[..]));
            assert_eq!(ring.recv().as_deref(), Some(&b""[..]), "the empty SDU");
            assert_eq!(ring.recv(), None, "both directions have ended");
            let (_, graceful) = ring.notice().unwrap();
            assert!(graceful, "{net:?}");
            drop((ring, stream));
            net.no_flow_is_left("after both ends");
        }
    }
}

#[test]
fn a_ring_that_dies_resets_the_stream() {
    for net in Net::all("ring-dies") {
        let (mut ring, stream) = net.ring_and_stream(Attach::Tcp);
        ring.send(b"so far");
        assert_eq!(stream.read(), Ok(b"so far".to_vec()));
        drop(ring);
        assert_eq!(stream.read(), Err(Errno::CONNRESET), "{net:?}");
    }
}

#[test]
fn a_stopped_node_resets_the_streams_that_it_moves() {
    let mut net = Net::local("stopped");
    let [caller, server] = net.stream([Attach::Tcp, Attach::Tcp]);
    net.stop_node();
    assert_eq!(caller.read(), Err(Errno::CONNRESET));
    assert_eq!(server.read(), Err(Errno::CONNRESET));
}

#[test]
fn a_slow_reader_holds_the_writer_back_and_loses_nothing() {
    for net in Net::all("slow") {
        let [caller, server] = net.stream([Attach::Unix, Attach::Unix]);
        let sent = content(64 << 20, 3);
        let mut written = 0;
        let mut quiet = 0;
        while quiet < 50 && written < sent.len() {
            match caller.write_now(&sent[written..]) {
                Ok(bytes) => (written, quiet) = (written + bytes, 0),
                Err(_) => {
                    quiet += 1;
                    thread::sleep(std::time::Duration::from_millis(5));
                }
            }
        }
        assert!(written < 16 << 20, "{written} bytes are under way, {net:?}");
        caller.shutdown(Shutdown::Write);
        assert!(server.read_to_end().as_deref() == Ok(&sent[..written]));
    }
}

#[test]
fn an_application_that_reads_no_more_may_still_write() {
    let net = Net::local("deaf");
    let [caller, server] = net.stream([Attach::Unix, Attach::Unix]);
    caller.shutdown(Shutdown::Read);
    // The bytes are more than all buffers hold together: they are discarded.
    server.write_all(&vec![7; 16 << 20]);
    server.shutdown(Shutdown::Write);
    caller.write_all(b"still here");
    caller.shutdown(Shutdown::Write);
    assert_eq!(server.read_to_end(), Ok(b"still here".to_vec()));
}

#[test]
fn ended_flow_over_a_normal_dif_leaves_no_state() {
    let net = Net::dif("many");
    for round in 0..30 {
        let [caller, server] = net.stream([Attach::Nothing, Attach::Nothing]);
        caller.write_all(&[round; 10]);
        drop(caller);
        assert_eq!(server.read_to_end(), Ok(vec![round; 10]));
    }
    net.no_flow_is_left("after all rounds");
    let spec = FlowSpec::reliable();
    let conn = net.caller_house().conn();
    let (_kept, attached) = socketpair_stream().unwrap();
    let request = allocate("nobody", Some("net"), spec, Mode::Stream);
    conn.say_attaching(&request, &[attached.as_fd()]);
    let refusal = conn.error();
    assert!(refusal.message.contains("nobody"), "{refusal}");
}
