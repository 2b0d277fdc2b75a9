//! The PROXY protocol, version 2 (HAProxy, *The PROXY protocol*, section 2.2): a header in front of
//! a connection that tells the server who the client is.
//!
//! A flow has names and no addresses. The address family is therefore `AF_UNSPEC`, and TLVs carry
//! the names.

use carina_client::FlowRequest;

/// Type of the TLV with the name that the remote application called.
pub const LOCAL_NAME_TLV: u8 = 0xe0;

/// Type of the TLV with the name of the remote application.
pub const REMOTE_NAME_TLV: u8 = 0xe1;

/// Type of the TLV with the name of the DIF.
pub const DIF_TLV: u8 = 0xe2;

/// Makes the header that goes in front of the connection for a flow.
pub(crate) fn header(request: &FlowRequest) -> Vec<u8> {
    header_of([
        (AUTHORITY_TLV, request.local.as_str()),
        (LOCAL_NAME_TLV, request.local.as_str()),
        (REMOTE_NAME_TLV, request.remote.as_str()),
        (DIF_TLV, request.dif.as_str()),
    ])
}

fn header_of<const N: usize>(tlvs: [(u8, &str); N]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, value) in tlvs {
        // Names have at most some hundred bytes.
        let bytes = &value.as_bytes()[..value.len().min(VALUE_BYTES_MAX)];
        body.push(kind);
        body.extend((bytes.len() as u16).to_be_bytes());
        body.extend(bytes);
    }
    let mut header = SIGNATURE.to_vec();
    header.extend([VERSION_2_PROXY, UNSPECIFIED]);
    header.extend((body.len() as u16).to_be_bytes());
    header.extend(body);
    header
}

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, command PROXY.
const VERSION_2_PROXY: u8 = 0x21;

/// `AF_UNSPEC`, protocol `UNSPEC`.
const UNSPECIFIED: u8 = 0x00;

/// `PP2_TYPE_AUTHORITY`: the host name to which the client connects.
const AUTHORITY_TLV: u8 = 0x02;

/// Longest value, in bytes: four of them fit the length of the header.
const VALUE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_laid_out_as_the_specification_says() {
        let header = header_of([(AUTHORITY_TLV, "ssh.vm1"), (DIF_TLV, "net")]);
        assert_eq!(
            &header[..12],
            b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a"
        );
        assert_eq!(&header[12..16], [0x21, 0x00, 0, 16]);
        assert_eq!(&header[16..], b"\x02\x00\x07ssh.vm1\xe2\x00\x03net");
    }
}
