//! An N-1 flow from this IPCP to itself. An IPCP that looks for any member of its DIF calls the
//! DIF's name, and its own system may answer to that name.

use alloc::string::ToString;

use carina_cdap::Message;
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::layer::TO_ITSELF;
use carina_time::Instant;

use super::Irati;
use super::n1::Stage;

impl Irati {
    /// Detects and returns an N-1 flow to this IPCP itself. `message` is an M_CONNECT with this
    /// IPCP's own name, received over `n1`. It is this IPCP's own if this IPCP has called the same
    /// name over another N-1 flow of the same N-1 DIF. Then both ends are returned, and the result
    /// is true.
    pub(super) fn return_n1_to_itself(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(came) = self.n1s.get(&n1) else {
            return false;
        };
        let dif = &came.props.dif;
        let mut asking = self.n1s.iter().filter(|(other, flow)| {
            let called = self.called_name(&flow.props);
            let is_asking = **other != n1 && matches!(flow.stage, Stage::Connecting { .. });
            is_asking && flow.props.dif == *dif && called == message.dst.ap
        });
        let Some(asking) = asking.next().map(|(other, _)| *other) else {
            return false;
        };
        self.log.count("n1-to-itself");
        if !self.is_member {
            let reason = TO_ITSELF.to_string();
            let n1 = asking;
            self.log.push(Event::EnrollFailed { n1, reason });
        }
        for end in [asking, n1] {
            self.disconnect(now, end, TO_ITSELF, false, dt);
            if let Some(flow) = self.n1s.get_mut(&end) {
                flow.cancel_retry();
            }
            let reason = TO_ITSELF.to_string();
            self.log.push(Event::DropN1 { n1: end, reason });
        }
        self.initiate_deferred(now);
        true
    }
}
