//! Fuzz target: messages of hostile clients of the name server.

use std::net::IpAddr;

use crate::dns::{Query, QueryError, RESPONSE_BYTES_MAX, Records};

/// Fuzz target: parses a message to the name server, and checks every response to it.
pub fn dns_query(data: &[u8]) {
    reads_dns_query(data);
}

/// Whether the bytes are a question. Checks that each response to it repeats its identifier and is
/// itself not a query.
pub fn reads_dns_query(data: &[u8]) -> bool {
    let query = match Query::read(data) {
        Ok(query) => query,
        Err(QueryError::NoQuery) => return false,
        Err(QueryError::Wrong(response)) => {
            check(data, &response);
            return false;
        }
    };
    let addresses: Vec<IpAddr> = vec![[198, 18, 0, 1].into(), [0xfd63, 0, 0, 0, 0, 0, 0, 1].into()];
    let all = [
        Records::Addresses(addresses),
        Records::Name(query.name().to_owned()),
        Records::NoSuchName,
        Records::OtherDomain,
        Records::Failed,
    ];
    for records in all {
        check(data, &query.answer_datagram(&records));
        let response = query.answer(&records);
        check(data, &response);
        let question = &data[12..data.len().min(12 + query.name().len() + 2 + 4)];
        assert_eq!(&response[12..12 + question.len()], question);
    }
    let _ = query.reverse();
    true
}

fn check(query: &[u8], response: &[u8]) {
    assert_eq!(response[..2], query[..2]);
    assert!(response.len() <= RESPONSE_BYTES_MAX);
    assert_eq!(Query::read(response), Err(QueryError::NoQuery));
}
