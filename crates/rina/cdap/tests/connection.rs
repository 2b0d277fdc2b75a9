//! The state machine of a connection: two correct ends, and ends that send wrong messages.

use carina_cdap::{
    Connection, Flag, Limits, Lost, Message, Opcode, Party, Receipt, RuleError, Rules, State,
    Value, Violation,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    pending_max: 4,
    timeout: 1000,
};

const LAST: Receipt = Receipt::Answer { is_last: true };

fn end() -> Connection {
    Connection::new(Rules::NATIVE, LIMITS)
}

fn connect() -> Message {
    Message::connect(Party::of("a"), Party::of("b"))
}

fn read() -> Message {
    Message::object(Opcode::Read, "", "/flows")
}

/// Sends a request that wants an answer; returns it with its invoke id.
fn ask(end: &mut Connection, now: u64, mut message: Message) -> Message {
    end.send_request(now, &mut message, true)
        .expect("a request");
    message
}

/// Two connected ends, and the M_CONNECT that connected them.
fn pair() -> (Connection, Connection, Message) {
    let (mut a, mut b) = (end(), end());
    let request = ask(&mut a, 0, connect());
    assert_eq!(b.receive(0, &request), Ok(Receipt::Request));
    assert_eq!((a.state(), b.state()), (State::AwaitCon, State::AwaitCon));
    let answer = request.answer();
    b.send_answer(0, &answer).expect("it was asked");
    assert_eq!(a.receive(0, &answer), Ok(LAST));
    assert_eq!((a.state(), b.state()), (State::Connected, State::Connected));
    (a, b, request)
}

#[test]
fn operations_need_a_connection() {
    let mut a = end();
    let refused = a.send_request(0, &mut read(), true);
    assert_eq!(refused, Err(Violation::State));
    assert_eq!(a.receive(0, &read()), Err(Violation::State));
    let mut a = end();
    ask(&mut a, 0, connect());
    assert_eq!(a.receive(0, &read()), Err(Violation::State));

    let authenticates = Rules {
        operations_while_connecting: true,
        ..Rules::NATIVE
    };
    let mut b = Connection::new(authenticates, LIMITS);
    let request = Message {
        invoke_id: 1,
        ..connect()
    };
    b.receive(0, &request).unwrap();
    assert_eq!(b.receive(0, &read()), Ok(Receipt::Request));
}

#[test]
fn a_refused_connection_is_not_open() {
    let (mut a, mut b) = (end(), end());
    let request = ask(&mut a, 0, connect());
    b.receive(0, &request).unwrap();
    let answer = request.answer().with_error(-6, "not you");
    b.send_answer(0, &answer).unwrap();
    assert_eq!(a.receive(0, &answer), Ok(LAST));
    assert_eq!((a.state(), b.state()), (State::None, State::None));
    assert_eq!(a.poll_lost(), None);
}

#[test]
fn requests_get_ids_and_answers_find_them_in_any_order() {
    let (mut a, mut b, _) = pair();
    let first = ask(&mut a, 0, read());
    let second = ask(&mut a, 0, read());
    assert_ne!(first.invoke_id, second.invoke_id);
    for request in [&first, &second] {
        assert_eq!(b.receive(0, request), Ok(Receipt::Request));
    }
    for request in [&second, &first] {
        let answer = request.answer();
        b.send_answer(0, &answer).unwrap();
        assert_eq!(a.receive(0, &answer), Ok(LAST));
        assert_eq!(a.receive(0, &answer), Err(Violation::Unasked));
        assert_eq!(b.send_answer(0, &answer), Err(Violation::Unasked));
    }
    assert_eq!(a.pending(), 0);

    let mut unanswered = read();
    a.send_request(0, &mut unanswered, false).unwrap();
    assert_eq!(unanswered.invoke_id, 0);
    assert_eq!(b.receive(0, &unanswered), Ok(Receipt::Request));
}

#[test]
fn an_answer_must_fit_its_request() {
    let (mut a, mut b, _) = pair();
    let request = ask(&mut a, 0, read());
    b.receive(0, &request).unwrap();
    let wrong = Message {
        opcode: Opcode::StartR,
        ..request.answer()
    };
    assert_eq!(a.receive(0, &wrong), Err(Violation::Unasked));
    assert_eq!(b.send_answer(0, &wrong), Err(Violation::Unasked));
    let wrong = Message {
        scope: 1,
        ..request.answer()
    };
    let rule = Violation::Rule(RuleError::Scope);
    assert_eq!(b.send_answer(0, &wrong), Err(rule));
    assert_eq!(b.receive(0, &request), Err(Violation::InvokeId));
}

#[test]
fn a_read_may_have_many_answers() {
    let (mut a, mut b, _) = pair();
    let request = ask(&mut a, 0, read());
    b.receive(0, &request).unwrap();
    let part = Message {
        flag: Flag::ReadIncomplete,
        ..request.answer().with_value(Value::Int(1))
    };
    for now in [900, 1800, 2700] {
        b.send_answer(now, &part).unwrap();
        let more = Receipt::Answer { is_last: false };
        assert_eq!(a.receive(now, &part), Ok(more));
        a.handle_timeout(now);
        b.handle_timeout(now);
    }
    b.send_answer(2800, &request.answer()).unwrap();
    assert_eq!(a.receive(2800, &request.answer()), Ok(LAST));
    assert_eq!(a.poll_lost(), None);
}

#[test]
fn a_cancelled_read_ends_with_the_answer_to_the_cancellation() {
    let cancel_of = |request: &Message| Message {
        invoke_id: request.invoke_id,
        ..Message::new(Opcode::CancelRead)
    };
    let part_of = |request: &Message| Message {
        flag: Flag::ReadIncomplete,
        ..request.answer()
    };
    let (mut a, mut b, _) = pair();
    let request = ask(&mut a, 0, read());
    b.receive(0, &request).unwrap();
    let cancel = ask(&mut a, 0, cancel_of(&request));
    assert_eq!(cancel.invoke_id, request.invoke_id);
    assert_eq!(a.receive(0, &part_of(&request)), Ok(Receipt::Cancelled));
    assert_eq!(b.receive(0, &cancel), Ok(Receipt::Request));
    assert_eq!(b.send_answer(0, &request.answer()), Err(Violation::Unasked));
    b.send_answer(0, &cancel.answer()).unwrap();
    assert_eq!(a.receive(0, &cancel.answer()), Ok(LAST));
    assert_eq!((a.pending(), a.poll_lost()), (0, None));

    // The last answer and the cancellation cross on the way.
    let request = ask(&mut a, 0, read());
    b.receive(0, &request).unwrap();
    b.send_answer(0, &request.answer()).unwrap();
    let cancel = ask(&mut a, 0, cancel_of(&request));
    assert_eq!(a.receive(0, &request.answer()), Ok(Receipt::Cancelled));
    assert_eq!(a.receive(0, &request.answer()), Err(Violation::Unasked));
    assert_eq!(b.receive(0, &cancel), Ok(Receipt::Request));
    b.send_answer(0, &cancel.answer()).unwrap();
    assert_eq!(a.receive(0, &cancel.answer()), Ok(LAST));

    let unasked = a.send_request(0, &mut cancel_of(&request), true);
    assert_eq!(unasked, Err(Violation::Unasked));
}

#[test]
fn a_repeated_connect_is_recognised_and_a_new_one_begins_anew() {
    let (mut a, mut b, request) = pair();
    assert_eq!(b.receive(0, &request), Ok(Receipt::Repeated));
    assert_eq!(b.state(), State::Connected);

    let question = ask(&mut b, 0, read());
    a.reset();
    assert_eq!(a.state(), State::None);
    let again = ask(&mut a, 5, connect());
    assert_eq!(b.receive(5, &again), Ok(Receipt::Reset));
    assert_eq!(b.state(), State::AwaitCon);
    let lost = Lost {
        invoke_id: question.invoke_id,
        opcode: Opcode::Read,
        is_timeout: false,
    };
    assert_eq!(b.poll_lost(), Some(lost));
    b.send_answer(5, &again.answer()).unwrap();
    assert_eq!(a.receive(5, &again.answer()), Ok(LAST));
}

#[test]
fn an_end_that_was_born_again_is_no_repetition() {
    let (_, mut b, _) = pair();
    let mut born_again = end().numbered_from(0x5eed);
    let request = ask(&mut born_again, 0, connect());
    assert_eq!(request.invoke_id, 0x5eed);
    assert_eq!(b.receive(0, &request), Ok(Receipt::Reset));
    assert_eq!(ask(&mut end().numbered_from(-5), 0, connect()).invoke_id, 1);
}

#[test]
fn two_connects_that_cross_are_refused() {
    let (mut a, mut b) = (end(), end());
    let (from_a, from_b) = (ask(&mut a, 0, connect()), ask(&mut b, 0, connect()));
    assert_eq!(a.receive(0, &from_b), Err(Violation::State));
    assert_eq!(b.receive(0, &from_a), Err(Violation::State));
}

#[test]
fn a_release_in_order_waits_for_its_answer() {
    let (mut a, mut b, _) = pair();
    let release = ask(&mut a, 0, Message::new(Opcode::Release));
    assert_eq!(a.state(), State::AwaitClose);
    let refused = a.send_request(0, &mut read(), true);
    assert_eq!(refused, Err(Violation::State));
    assert_eq!(b.receive(0, &release), Ok(Receipt::Request));
    assert_eq!(b.state(), State::AwaitClose);
    b.send_answer(0, &release.answer()).unwrap();
    assert_eq!(a.receive(0, &release.answer()), Ok(LAST));
    assert_eq!((a.state(), b.state()), (State::None, State::None));

    let (mut a, mut b, _) = pair();
    let mut release = Message::new(Opcode::Release);
    a.send_request(0, &mut release, false).unwrap();
    assert_eq!(b.receive(0, &release), Ok(Receipt::Request));
    assert_eq!((a.state(), b.state()), (State::None, State::None));

    let (mut a, mut b, _) = pair();
    let from_a = ask(&mut a, 0, Message::new(Opcode::Release));
    let from_b = ask(&mut b, 0, Message::new(Opcode::Release));
    assert_eq!(a.receive(0, &from_b), Ok(LAST));
    assert_eq!(b.receive(0, &from_a), Ok(LAST));
    assert_eq!((a.state(), b.state()), (State::None, State::None));
}

#[test]
fn what_waits_too_long_is_given_up() {
    let mut a = end();
    ask(&mut a, 10, connect());
    assert_eq!(a.poll_timeout(), Some(1010));
    a.handle_timeout(1009);
    assert_eq!(a.state(), State::AwaitCon);
    a.handle_timeout(1010);
    assert_eq!(a.state(), State::None);
    let lost = a.poll_lost().unwrap();
    assert_eq!((lost.opcode, lost.is_timeout), (Opcode::Connect, true));
    assert_eq!(a.poll_timeout(), None);

    let (mut a, mut b, _) = pair();
    let request = ask(&mut a, 0, read());
    b.receive(0, &request).unwrap();
    a.handle_timeout(1000);
    b.handle_timeout(1000);
    assert_eq!(a.poll_lost().map(|lost| lost.opcode), Some(Opcode::Read));
    assert_eq!(a.receive(1001, &request.answer()), Err(Violation::Unasked));
    assert_eq!(
        b.send_answer(1001, &request.answer()),
        Err(Violation::Unasked)
    );
    assert_eq!(a.state(), State::Connected);

    let mut b = end();
    let request = Message {
        invoke_id: 1,
        ..connect()
    };
    b.receive(0, &request).unwrap();
    b.handle_timeout(1000);
    assert_eq!(b.state(), State::None, "no response came");
    assert_eq!(b.receive(1001, &request), Ok(Receipt::Request));
}

#[test]
fn neither_side_can_have_more_pending_than_allowed() {
    let (mut a, mut b, _) = pair();
    for _ in 0..4 {
        let request = ask(&mut a, 0, read());
        b.receive(0, &request).unwrap();
    }
    let refused = a.send_request(0, &mut read(), true);
    assert_eq!(refused, Err(Violation::Backlog));
    let request = Message {
        invoke_id: 99,
        ..read()
    };
    assert_eq!(b.receive(0, &request), Err(Violation::Backlog));
    assert!(a.send_request(0, &mut read(), false).is_ok());
}

proptest! {
    /// Whatever messages arrive, in whatever order: limits hold, pending requests expire, and the
    /// end can connect again.
    #[test]
    fn any_sequence_of_messages_leaves_a_usable_end(
        steps in prop::collection::vec(
            (prop::sample::select(Opcode::ALL.to_vec()), 0..6i32, any::<bool>(), 0..400u64),
            0..60,
        ),
    ) {
        let mut a = end();
        let mut now = 0;
        for (opcode, invoke_id, sends, pause) in steps {
            now += pause;
            a.handle_timeout(now);
            let mut message = Message { invoke_id, ..Message::new(opcode) };
            if opcode.request() == Opcode::Connect {
                message = Message { invoke_id, opcode, ..connect() };
            } else if opcode.has_object() {
                message.name = "/x".into();
                message.value = (opcode == Opcode::Write).then_some(Value::Int(1));
            }
            let _ = match (sends, opcode.is_response()) {
                (true, true) => a.send_answer(now, &message).map(|()| Receipt::Request),
                (true, false) => a
                    .send_request(now, &mut message, invoke_id > 0)
                    .map(|()| Receipt::Request),
                (false, _) => a.receive(now, &message),
            };
            prop_assert!(a.pending() <= LIMITS.pending_max);
        }
        let late = now + LIMITS.timeout;
        a.handle_timeout(late);
        prop_assert_eq!(a.pending(), 0);
        prop_assert_eq!(a.poll_timeout(), None);
        a.reset();
        prop_assert!(a.send_request(late, &mut connect(), true).is_ok());
    }
}
