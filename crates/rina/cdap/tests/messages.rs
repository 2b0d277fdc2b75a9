//! Messages: the examples of `docs/explanation/cdap.md`, messages of other implementations, and the
//! rules.

use carina_cdap::{Auth, CdapError, Flag, Message, Opcode, Party, RuleError, Rules, Value};
use proptest::prelude::*;

const DOCUMENT: &str = include_str!("../../../../docs/explanation/cdap.md");

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("a byte"))
        .collect()
}

/// The bytes of an example in the document.
fn example(name: &str) -> Vec<u8> {
    let begin = format!("\n```{name}\n");
    let (_, block) = DOCUMENT
        .split_once(&begin)
        .unwrap_or_else(|| panic!("no example {name}"));
    hex(block.split_once("```").expect("its end").0)
}

fn golden(rules: &Rules, message: &Message, bytes: &[u8]) {
    assert_eq!(rules.encode(message), bytes, "{message:?}");
    assert_eq!(rules.decode(bytes).as_ref(), Ok(message));
}

fn read() -> Message {
    Message {
        invoke_id: 2,
        scope: 1,
        ..Message::object(Opcode::Read, "", "/routing/table")
    }
}

#[test]
fn messages_are_as_documented() {
    let native = &Rules::NATIVE;
    let connect = Message {
        invoke_id: 1,
        ..Message::connect(Party::of("dif-a.1"), Party::of("dif-a.2"))
    };
    golden(native, &connect, &example("connect"));
    golden(native, &read(), &example("read"));
    let answer = Message {
        class: "route".into(),
        name: "/routing/table/5".into(),
        flag: Flag::ReadIncomplete,
        ..read().answer()
    };
    let answer = answer.with_value(Value::Int(7));
    golden(native, &answer, &example("read-answer"));
    let failure = Message {
        name: String::new(),
        ..read().answer().with_error(-1, "no such object")
    };
    golden(native, &failure, &example("failure"));
}

/// With these rules, captured messages of two other implementations are decoded and encoded without
/// a change.
#[test]
fn other_dialects_differ_in_their_rules_only() {
    let rlite = Rules::RLITE;
    let stop = Message {
        invoke_id: 6,
        version: 1,
        ..Message::object(Opcode::Stop, "enrollment", "/mgmt/enrollment")
    };
    golden(
        &rlite,
        &stop.with_value(Value::Bytes(vec![0x18, 1])),
        &hex(
            "08001010180620002a0a656e726f6c6c6d656e7432102f6d676d742f656e726f6c6c6d656e74\
             4204320218014800e00101",
        ),
    );
    let connect = Message {
        invoke_id: 2,
        abstract_syntax: 73,
        ..Message::connect(Party::of("xnorm.IPCP"), Party::of("ynorm.IPCP"))
    };
    golden(
        &rlite,
        &connect,
        &hex(
            "08491000180220002a00320048009a0100a20100aa0100b2010a796e6f726d2e49504350ba0100c20100\
             ca0100d2010a786e6f726d2e49504350e00101",
        ),
    );

    let irati = Rules::IRATI;
    let party = |ap: &str| Party {
        ap: ap.into(),
        api: "1".into(),
        ae: "Management".into(),
        aei: String::new(),
    };
    let connect = Message {
        invoke_id: 1,
        auth: Some(Auth {
            mechanism: 0,
            name: "PSOC_authentication-none".into(),
            texts: vec!["1".into()],
            value: Vec::new(),
        }),
        ..Message::connect(party("test2.normal.DIF"), party("test1.normal.DIF"))
    };
    golden(
        &irati,
        &connect,
        &hex(
            "0873100018012a00320038004800500092011d0a1850534f435f61757468656e7469636174696f6e2d6e\
              6f6e651201319a0100a2010a4d616e6167656d656e74aa010131b2011074657374312e6e6f726d616c2e\
              444946ba0100c2010a4d616e6167656d656e74ca010131d2011074657374322e6e6f726d616c2e444946\
              da0100e00101",
        ),
    );
}

#[test]
fn every_rule_is_enforced() {
    let refused = |message: &Message, rule: RuleError| {
        let bytes = message.encode();
        assert_eq!(
            Message::decode(&bytes),
            Err(CdapError::Rule(rule)),
            "{message:?}"
        );
    };
    let connect = Message {
        invoke_id: 1,
        ..Message::connect(Party::of("a"), Party::of("b"))
    };
    assert_eq!(Message::decode(&connect.encode()), Ok(connect.clone()));
    let with = |change: &dyn Fn(&mut Message), base: &Message| {
        let mut message = base.clone();
        change(&mut message);
        message
    };
    refused(&with(&|m| m.version = 2, &connect), RuleError::Version);
    refused(
        &with(&|m| m.abstract_syntax = 0, &connect),
        RuleError::Version,
    );
    refused(&with(&|m| m.src.ap.clear(), &connect), RuleError::Party);
    refused(&with(&|m| m.invoke_id = 0, &connect), RuleError::InvokeId);
    refused(
        &with(&|m| m.name = "/x".into(), &connect),
        RuleError::Object,
    );
    refused(
        &with(&|m| m.value = Some(Value::Int(1)), &connect),
        RuleError::Value,
    );

    refused(&with(&|m| m.version = 1, &read()), RuleError::Version);
    refused(&with(&|m| m.dst.ae = "x".into(), &read()), RuleError::Party);
    refused(&with(&|m| m.name.clear(), &read()), RuleError::Object);
    refused(&with(&|m| m.invoke_id = -1, &read()), RuleError::InvokeId);
    refused(
        &with(&|m| m.flag = Flag::ReadIncomplete, &read()),
        RuleError::Flag,
    );
    refused(&with(&|m| m.result = 1, &read()), RuleError::Result);
    refused(&with(&|m| m.scope = -1, &read()), RuleError::Scope);
    refused(
        &with(&|m| m.opcode = Opcode::Write, &read()),
        RuleError::Value,
    );
    refused(
        &with(&|m| m.opcode = Opcode::CancelRead, &read()),
        RuleError::Object,
    );
    let answer = read().answer();
    refused(&with(&|m| m.invoke_id = 0, &answer), RuleError::InvokeId);
    refused(&with(&|m| m.flag = Flag::Sync, &answer), RuleError::Flag);
    refused(&with(&|m| m.filter = vec![1], &answer), RuleError::Scope);
    let deleted = Message::object(Opcode::DeleteR, "c", "/n").with_value(Value::Bool(true));
    refused(&with(&|m| m.invoke_id = 1, &deleted), RuleError::Value);
}

#[test]
fn bytes_that_are_no_message_say_why() {
    let why = |bytes: &[u8]| Message::decode(bytes).unwrap_err();
    assert_eq!(why(&[]), CdapError::Opcode);
    assert_eq!(why(&hex("10 12")), CdapError::Opcode);
    assert_eq!(why(&hex("10 08 20 03")), CdapError::Flag);
    assert_eq!(why(&hex("10 08 32 05 61")), CdapError::Malformed);
    assert_eq!(why(&hex("10 08 32 01 ff")), CdapError::Malformed);
    assert_eq!(
        why(&hex("10 0c 32 01 61 42 04 08 01 18 01")),
        CdapError::Value
    );
    assert_eq!(why(&vec![0; 65_537]), CdapError::TooLong);
    let long = Message::object(Opcode::Read, "", &"n".repeat(1025));
    assert_eq!(why(&long.encode()), CdapError::TextTooLong);
    let mut many = read();
    many.auth = Some(Auth {
        texts: vec![String::new(); 17],
        ..Auth::default()
    });
    assert_eq!(why(&many.encode()), CdapError::TextTooLong);
    assert!(
        Message::decode(&hex("10 08 32 01 61 98 06 05")).is_ok(),
        "an unknown field"
    );
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i32>().prop_map(Value::Int),
        any::<i32>().prop_map(Value::Sint),
        any::<i64>().prop_map(Value::Int64),
        any::<i64>().prop_map(Value::Sint64),
        ".{0,20}".prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
        (-1e9f32..1e9).prop_map(Value::Float),
        (-1e99f64..1e99).prop_map(Value::Double),
        any::<bool>().prop_map(Value::Bool),
    ]
}

fn messages() -> impl Strategy<Value = Message> {
    let texts = ".{0,12}";
    let party = (texts, texts, texts, texts).prop_map(|(ap, api, ae, aei)| Party {
        ap: format!("a{ap}"),
        api,
        ae,
        aei,
    });
    let auth = (
        any::<i32>(),
        texts,
        prop::collection::vec(texts, 0..4),
        any::<[u8; 9]>(),
    )
        .prop_map(|(mechanism, name, texts, value)| Auth {
            mechanism,
            name,
            texts,
            value: value.to_vec(),
        });
    (
        prop::sample::select(Opcode::ALL.to_vec()),
        (1..=i32::MAX, any::<i32>(), 0..=i32::MAX, any::<i64>()),
        (texts, texts, texts, any::<[u8; 5]>()),
        (party.clone(), party),
        prop::option::of(values()),
        prop::option::of(auth),
        any::<bool>(),
    )
        .prop_map(|(opcode, numbers, texts, parties, value, auth, flag)| {
            let mut m = Message::new(opcode);
            (m.invoke_id, m.auth) = (numbers.0, auth);
            if opcode.request() == Opcode::Connect {
                (m.src, m.dst) = parties;
                (m.abstract_syntax, m.version) = (115, 1);
            }
            if opcode.is_response() {
                (m.result, m.reason) = (numbers.1, texts.2);
            }
            if opcode.has_object() {
                (m.class, m.name) = (texts.0, format!("/{}", texts.1));
                m.instance = numbers.3;
                m.value = value.filter(|_| opcode != Opcode::DeleteR);
                if opcode == Opcode::Write {
                    m.value.get_or_insert(Value::Bool(flag));
                }
                if !opcode.is_response() {
                    (m.scope, m.filter) = (numbers.2, texts.3.to_vec());
                }
            }
            m.flag = match opcode {
                Opcode::ReadR if flag => Flag::ReadIncomplete,
                _ if flag && !opcode.is_response() => Flag::Sync,
                _ => Flag::None,
            };
            m.auth = m.auth.filter(|auth| *auth != Auth::default());
            m
        })
}

proptest! {
    #[test]
    fn what_is_encoded_decodes(message in messages()) {
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn what_decodes_encodes_and_decodes_to_the_same(
        message in messages(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = message.encode();
        let length = bytes.len();
        for (at, byte) in flips {
            bytes[at.index(length)] ^= byte;
        }
        if let Ok(decoded) = Message::decode(&bytes) {
            let encoded = decoded.encode();
            // Compared as bytes, because NaN equals nothing.
            prop_assert_eq!(Message::decode(&encoded).map(|again| again.encode()), Ok(encoded));
        }
    }
}
