//! Tests of answers to DNS queries and to malformed messages.

use super::*;

fn query(name: &str, kind: u16) -> Vec<u8> {
    let header = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let name = written_name(name).unwrap();
    [&header[..], &name, &kind.to_be_bytes(), &[0, 1]].concat()
}

fn answered(message: &[u8], records: &Records) -> Vec<u8> {
    Query::read(message).unwrap().answer(records)
}

/// Response code and number of answers.
fn outcome(response: &[u8]) -> (u8, u8) {
    assert_eq!(response[..2], [0x12, 0x34]);
    assert_ne!(response[2] & 0x80, 0);
    (response[3] & 0xf, response[7])
}

fn both() -> Records {
    Records::Addresses(vec![
        "198.18.0.1".parse().unwrap(),
        "fd63::1".parse().unwrap(),
    ])
}

#[test]
fn each_type_has_its_address_and_others_no_data() {
    let a = answered(&query("Web.Dif.Internal", A), &both());
    assert_eq!(outcome(&a), (0, 1));
    assert!(a.ends_with(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 198, 18, 0, 1]));
    let six = answered(&query("web.dif.internal", AAAA), &both());
    assert_eq!(
        six[six.len() - 16..],
        Ipv6Addr::new(0xfd63, 0, 0, 0, 0, 0, 0, 1).octets()
    );
    assert_eq!(
        outcome(&answered(&query("web.dif.internal", ANY), &both())),
        (0, 2)
    );
    assert_eq!(
        outcome(&answered(&query("web.dif.internal", 15), &both())),
        (0, 0)
    );
    let none = answered(&query("no.dif.internal", A), &Records::NoSuchName);
    assert_eq!(outcome(&none), (3, 0));
    assert_eq!(
        outcome(&answered(&query("a.org", A), &Records::OtherDomain)),
        (5, 0)
    );
    assert_eq!(outcome(&answered(&query("a", A), &Records::Failed)), (2, 0));
    let read = Query::read(&query("Web.Dif.Internal", A)).unwrap();
    assert_eq!(read.name(), "web.dif.internal");
}

#[test]
fn reverse_names_are_addresses() {
    let reverse = |name: &str| Query::read(&query(name, PTR)).unwrap().reverse();
    assert_eq!(
        reverse("7.0.18.198.in-addr.arpa"),
        Some("198.18.0.7".parse().unwrap())
    );
    let six = format!("1.{}d.f.ip6.arpa", "0.".repeat(29));
    assert_eq!(reverse(&six), Some("fd00::1".parse().unwrap()));
    for name in [
        "0.18.198.in-addr.arpa",
        "x.0.18.198.in-addr.arpa",
        "1.0.ip6.arpa",
        "a.b",
    ] {
        assert_eq!(reverse(name), None, "{name}");
    }
    let message = query("7.0.18.198.in-addr.arpa", PTR);
    let response = answered(&message, &Records::Name("web.vm".into()));
    assert_eq!(outcome(&response), (0, 1));
    assert!(response.ends_with(b"\x03web\x02vm\0"));
}

#[test]
fn longest_messages_fit() {
    let long = [&"a".repeat(63)[..]; 4].join(".")[..253].to_owned();
    let mut message = query(&long, PTR);
    message[11] = 1;
    message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    let response = answered(&message, &Records::Name(long));
    assert!(response.len() <= RESPONSE_BYTES_MAX);
    assert_eq!(response[11], 1);
    let many = Records::Addresses(vec![IpAddr::V6(Ipv6Addr::LOCALHOST); 100]);
    let long = [&"a".repeat(63)[..]; 4].join(".")[..253].to_owned();
    assert!(answered(&query(&long, AAAA), &many).len() <= RESPONSE_BYTES_MAX);
}

#[test]
fn long_answers_over_udp_are_truncated_unless_edns_has_room() {
    let long = [&"a".repeat(63)[..]; 4].join(".")[..253].to_owned();
    let many = Records::Addresses(vec![IpAddr::V6(Ipv6Addr::LOCALHOST); 16]);
    let message = query(&long, AAAA);
    let truncated = Query::read(&message).unwrap().answer_datagram(&many);
    assert!(truncated.len() <= 512);
    assert_eq!((truncated[2] & 2, truncated[7]), (2, 0));
    assert_eq!(outcome(&answered(&message, &many)), (0, 16), "by TCP, all");
    let with_edns = |bytes: u16| {
        let mut message = message.clone();
        message[11] = 1;
        message.extend([0, 0, 41]);
        message.extend(bytes.to_be_bytes());
        message.extend([0; 6]);
        Query::read(&message).unwrap().answer_datagram(&many)
    };
    let whole = with_edns(1232);
    assert_eq!((whole[2] & 2, whole[7]), (0, 16));
    // Less than 512 counts as 512 (RFC 6891 §6.2.5).
    for bytes in [0, 600] {
        let truncated = with_edns(bytes);
        assert!(truncated.len() <= 512);
        assert_eq!((truncated[2] & 2, truncated[7], truncated[11]), (2, 0, 1));
    }
    let short = Query::read(&query("web.vm", A))
        .unwrap()
        .answer_datagram(&both());
    assert_eq!((short[2] & 2, short[7]), (0, 1));
}

#[test]
fn unknown_version_of_edns_is_named_as_the_fault() {
    let mut message = query("web.vm", A);
    message[11] = 1;
    let question = message[12..].to_vec();
    message.extend([0, 0, 41, 4, 208, 0, 1, 0, 0, 0, 0]);
    let Err(QueryError::Wrong(answer)) = Query::read(&message) else {
        panic!("it is answered");
    };
    assert_eq!(answer[..12], [0x12, 0x34, 0x81, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    let record = [0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 0];
    assert_eq!(answer[12..], [&question[..], &record].concat());
}

#[test]
fn malformed_messages_get_errors_or_nothing() {
    let code = |message: &[u8]| match Query::read(message) {
        Err(QueryError::Wrong(answer)) => outcome(&answer).0,
        other => panic!("{other:?}"),
    };
    let good = query("web.vm", A);
    assert_eq!(Query::read(&good[..11]), Err(QueryError::NoQuery));
    let with = |at: usize, byte: u8| {
        let mut message = good.clone();
        message[at] = byte;
        message
    };
    assert_eq!(Query::read(&with(2, 0x80)), Err(QueryError::NoQuery));
    assert_eq!(code(&with(2, 0x10)), 4, "another operation");
    assert_eq!(code(&with(5, 2)), 1, "two questions");
    assert_eq!(code(&with(7, 1)), 1, "an answer in a query");
    assert_eq!(code(&with(12, 0xc0)), 1, "a pointer in the question");
    assert_eq!(code(&with(12, 200)), 1);
    assert_eq!(code(&with(11, 1)), 1, "no additional record");
    assert_eq!(code(&good[..good.len() - 1]), 1);
    assert_eq!(
        code(&[&good[..], b"x"].concat()),
        1,
        "bytes behind the question"
    );
    assert_eq!(code(&with(good.len() - 1, 3)), 5, "another class");
    let endless = [&good[..12], &[1, b'a'].repeat(200)[..], &[0, 0, 1, 0, 1]].concat();
    assert_eq!(code(&endless), 1);
    let odd = [&good[..12], b"\x04a.b\n\0\0\x01\0\x01"].concat();
    assert_eq!(Query::read(&odd).unwrap().name(), "a?b?");
}
