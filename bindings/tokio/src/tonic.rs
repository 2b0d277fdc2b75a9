//! Byte streams as connections of a server of tonic.

use carina_client::FlowInfo;
use tonic::transport::server::Connected;

use crate::byte_stream::ByteStream;

impl Connected for ByteStream {
    /// A handler finds it in the extensions of the request.
    type ConnectInfo = FlowInfo;

    fn connect_info(&self) -> FlowInfo {
        self.info().clone()
    }
}
