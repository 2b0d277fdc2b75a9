//! What an application says on `ipc.sock`, and what a person writes into a configuration.

use carina_api::ipc::{Reply, Request, decode, encode};
use carina_node::config::Config;

/// Messages of `ipc.sock`, both directions: what decodes encodes, and decodes to the same again.
pub fn ipc_message(data: &[u8]) {
    if let Ok(request) = decode::<Request>(data) {
        let encoded = encode(&request).expect("a request that was decoded can be encoded");
        assert_eq!(decode::<Request>(&encoded).expect("and decoded"), request);
    }
    if let Ok(reply) = decode::<Reply>(data) {
        let encoded = encode(&reply).expect("a reply that was decoded can be encoded");
        assert_eq!(decode::<Reply>(&encoded).expect("and decoded"), reply);
    }
}

/// Configurations: an error has a text that says something.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Err(error) = Config::parse(text, None) {
        assert!(!error.to_string().is_empty());
    }
}
