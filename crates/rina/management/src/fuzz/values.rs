//! Fuzz entry points: the decoders of values that other members write.
//!
//! The first byte selects the decoder for the bytes after it.

use alloc::collections::BTreeMap;

use carina_cdap::Message;
use carina_time::Instant;

use crate::schema;

/// Decodes values of the exchange between neighbours, of enrollment, of replicated entries, of
/// flows and of the RIB.
pub fn enrollment(bytes: &[u8]) {
    let _ = reads_enrollment(bytes);
}

/// Whether the bytes decode as such a value. A decoded value must encode and decode to the same
/// value.
pub fn reads_enrollment(bytes: &[u8]) -> bool {
    let Some((kind, bytes)) = bytes.split_first() else {
        return false;
    };
    match kind % 7 {
        0 => {
            let message = Message::decode(bytes).ok();
            message
                .and_then(|message| schema::greeting(&message))
                .is_some()
        }
        1 => {
            let object = core::str::from_utf8(bytes)
                .ok()
                .and_then(schema::Object::parse);
            let path = object.as_ref().map(schema::Object::path);
            let again = path.as_deref().and_then(schema::Object::parse);
            assert_eq!(again, object);
            object.is_some()
        }
        2 => {
            let config = schema::decode_dif(bytes);
            let again = config.as_ref().map(schema::encode_dif);
            assert_eq!(again.and_then(|again| schema::decode_dif(&again)), config);
            config.is_some()
        }
        3 => {
            let entries = schema::decode_entries(bytes);
            let again = entries.as_deref().map(schema::encode_entries);
            assert_eq!(
                again.and_then(|again| schema::decode_entries(&again)),
                entries
            );
            entries.is_some()
        }
        4 => {
            let digests = schema::decode_digests(bytes);
            let again = digests.clone().map(schema::encode_digests);
            assert_eq!(
                again.and_then(|again| schema::decode_digests(&again)),
                digests
            );
            digests.is_some()
        }
        5 => {
            let objects = schema::decode_objects(bytes);
            let again = objects.as_deref().map(schema::encode_objects);
            assert_eq!(
                again.and_then(|again| schema::decode_objects(&again)),
                objects
            );
            objects.is_some()
        }
        _ => {
            let flow = schema::decode::<schema::FlowObject>(bytes);
            let spec = flow.and_then(|flow| flow.spec?.read());
            if let Some(spec) = spec {
                assert_eq!(schema::SpecValue::from(spec).read(), Some(spec));
            }
            spec.is_some()
        }
    }
}

/// Decodes messages of the routing policy and passes them to the policy.
pub fn link_state(bytes: &[u8]) {
    let _ = reads_link_state(bytes);
}

/// Whether the bytes decode as a message of the routing policy.
pub fn reads_link_state(bytes: &[u8]) -> bool {
    let Some(message) = schema::decode_routing(bytes) else {
        return false;
    };
    let again = schema::decode_routing(&schema::encode_routing(&message));
    assert_eq!(again.as_ref(), Some(&message));
    let Ok(mut routing) = carina_routing::policy::make("", &BTreeMap::new()) else {
        return false;
    };
    routing.set_own(Instant::ZERO, 1, "own");
    routing.handle_link_up(Instant::ZERO, 2, 1);
    routing.handle_message(Instant::from_nanos(1), 2, message);
    for now in [1, 60].map(Instant::from_secs) {
        routing.handle_timeout(now);
        while routing.poll_message(now).is_some() {}
        let _ = routing.poll_routes();
        assert!(!routing.table().contains_key(&1));
    }
    true
}
