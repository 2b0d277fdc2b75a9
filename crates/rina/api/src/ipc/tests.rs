//! Checks the exact JSON of messages on `ipc.sock`.

use super::*;

fn name(text: &str) -> AppName {
    AppName::new(text).unwrap()
}

#[test]
fn register_reads_as_documented() {
    let text = br#"{"op":"register","version":1,"name":"echo","dif":null}"#;
    let request: Request = decode(text).unwrap();
    assert_eq!(
        request,
        Request::Register {
            version: 1,
            name: name("echo"),
            dif: None,
            streams: false,
            shared: false,
        }
    );
    assert_eq!(encode(&request).unwrap(), text);
}

#[test]
fn allocate_needs_only_version_and_names() {
    let text = br#"{"op":"allocate","version":1,"local":"a","remote":"b"}"#;
    let Request::Allocate {
        spec,
        mode,
        membarrier,
        ring_bytes,
        dif,
        ..
    } = decode(text).unwrap()
    else {
        panic!("not an allocate");
    };
    assert_eq!(spec, FlowSpec::unreliable());
    assert_eq!(
        (mode, membarrier, ring_bytes, dif),
        (Mode::Ring, false, None, None)
    );
}

#[test]
fn unknown_fields_and_ops_are_refused() {
    for bad in [
        r#"{"op":"register","version":1,"name":"echo","colour":"red"}"#,
        r#"{"op":"unregister","name":"echo"}"#,
        r#"{"op":"register","version":1,"name":"|b"}"#,
        r#"{"op":"register","version":-1,"name":"a"}"#,
        r#"[]"#,
        r#""#,
    ] {
        assert!(decode::<Request>(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn refusal_is_flat_and_omits_an_absent_request() {
    let refusal = Refusal {
        request: None,
        error: ErrorBody::new(ErrorCode::NotFound, "no"),
    };
    let text = encode(&Reply::Error(refusal.clone())).unwrap();
    assert_eq!(text, br#"{"error":{"code":"not-found","message":"no"}}"#);
    assert_eq!(decode::<Reply>(&text).unwrap(), Reply::Error(refusal));
}

#[test]
fn longest_message_is_64_kib() {
    let text = vec![b' '; MESSAGE_BYTES_MAX + 1];
    let refusal = decode::<Request>(&text).unwrap_err();
    assert!(matches!(refusal, MessageError::TooLong { bytes: 65537 }));
}

#[test]
fn deep_nesting_is_an_error_and_not_a_crash() {
    let text = "[".repeat(60_000);
    assert!(decode::<Request>(text.as_bytes()).is_err());
    let text = format!("{{\"op\":{}", "{\"op\":".repeat(9_000));
    assert!(decode::<Request>(text.as_bytes()).is_err());
}

#[test]
fn ring_sizes_outside_the_range_are_refused() {
    assert_eq!(ring_bytes_checked(RING_BYTES_DEFAULT), Ok(1 << 20));
    assert_eq!(ring_bytes_checked(4096), Ok(4096));
    for bad in [0, 1, 4095, 6000, 128 << 20, u64::MAX] {
        assert_eq!(
            ring_bytes_checked(bad).unwrap_err().code,
            ErrorCode::BadRequest
        );
    }
}
