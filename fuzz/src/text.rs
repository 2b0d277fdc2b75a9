//! What an application says on `ipc.sock`, and what a person writes into a configuration.

use carina_api::ipc::{FlowNotice, Reply, Request, decode, encode};
use carina_node::{Config, ConfigError};

/// Messages of `ipc.sock`, both directions.
pub fn ipc_message(data: &[u8]) {
    reads_ipc_message(data);
}

/// True when the bytes are a message. What decodes encodes, and decodes to the same again, with
/// names within their limits.
pub fn reads_ipc_message(data: &[u8]) -> bool {
    let request = decode::<Request>(data);
    if let Ok(request) = &request {
        let encoded = encode(request).expect("a request that was decoded can be encoded");
        assert_eq!(decode::<Request>(&encoded).expect("and decoded"), *request);
        if let Request::Register { name, .. } = request {
            assert!(carina_wire::check_name(name.as_str()).is_ok());
        }
    }
    let reply = decode::<Reply>(data);
    if let Ok(reply) = &reply {
        let encoded = encode(reply).expect("a reply that was decoded can be encoded");
        assert_eq!(decode::<Reply>(&encoded).expect("and decoded"), *reply);
    }
    request.is_ok() || reply.is_ok() || decode::<FlowNotice>(data).is_ok()
}

/// Configurations.
pub fn configuration(data: &[u8]) {
    reads_configuration(data);
}

/// True when the bytes are a configuration; any other text gives an error with a line within it.
pub fn reads_configuration(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let error = match Config::parse(text, None) {
        Ok(_) => return true,
        Err(error) => error,
    };
    if let ConfigError::Meaning { line, .. } = error {
        let lines = text.lines().count().max(1);
        let is_within = line.is_none_or(|line| (1..=lines).contains(&line));
        assert!(is_within, "{line:?} in {text:?}");
    } else {
        let message = error.to_string();
        let is_placed = message.contains("line") || message.contains("nested too deeply");
        assert!(is_placed, "{message}");
    }
    false
}
