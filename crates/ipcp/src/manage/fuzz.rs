//! Entry points for fuzzing: what reads the values that other members write.

use carina_cdap::Message;

use super::dialect;

/// Values of the exchange that makes neighbours, of enrollment, of replicated entries, of flows
/// and of the RIB. What is read is written and read again as the same.
pub fn enrollment(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        let _ = dialect::greeting(&message);
        let _ = dialect::Object::parse(&message.name);
    }
    if let Some(object) = core::str::from_utf8(bytes)
        .ok()
        .and_then(dialect::Object::parse)
    {
        let path = object.path();
        assert_eq!(
            dialect::Object::parse(&path).map(|again| again.path()),
            Some(path)
        );
    }
    if let Some(config) = dialect::decode_dif(bytes) {
        assert_eq!(
            dialect::decode_dif(&dialect::encode_dif(&config)),
            Some(config)
        );
    }
    if let Some(entries) = dialect::decode_entries(bytes) {
        assert_eq!(
            dialect::decode_entries(&dialect::encode_entries(&entries)),
            Some(entries)
        );
    }
    if let Some(digests) = dialect::decode_digests(bytes) {
        assert_eq!(
            dialect::decode_digests(&dialect::encode_digests(digests.clone())),
            Some(digests)
        );
    }
    if let Some(objects) = dialect::decode_objects(bytes) {
        assert_eq!(
            dialect::decode_objects(&dialect::encode_objects(&objects)),
            Some(objects)
        );
    }
    if let Some(flow) = dialect::decode::<dialect::FlowObject>(bytes) {
        let spec = flow.spec.as_ref().and_then(dialect::SpecValue::read);
        if let Some(spec) = spec {
            assert_eq!(dialect::SpecValue::from(spec).read(), Some(spec));
        }
    }
}

/// Messages of the routing policy.
pub fn link_state(bytes: &[u8]) {
    if let Some(message) = dialect::decode_routing(bytes) {
        let again = dialect::decode_routing(&dialect::encode_routing(&message));
        assert_eq!(again, Some(message));
    }
}
