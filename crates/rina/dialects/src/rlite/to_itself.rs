//! An N-1 flow from this IPCP to itself. An IPCP that looks for any member of its DIF calls the
//! DIF's name, and its own system may answer to that name.

use alloc::string::ToString;

use carina_cdap::{Message, Party};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::layer::TO_ITSELF;
use carina_time::Instant;

use super::Rlite;
use super::n1::Stage;
use crate::interop::names::Name;

impl Rlite {
    /// Detects and returns an N-1 flow to this IPCP itself. `message` is the M_CONNECT of `name`,
    /// received over `n1`. It is this IPCP's own if it has this IPCP's name and equals the one that
    /// this IPCP has sent over another N-1 flow of the same N-1 DIF. Then both ends are returned,
    /// and the result is true.
    pub(super) fn return_n1_to_itself(
        &mut self,
        now: Instant,
        n1: N1Port,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(came) = self.n1s.get(&n1).filter(|_| name == self.own) else {
            return false;
        };
        let dif = &came.props.dif;
        let mut asking = self.n1s.iter().filter(|(other, flow)| {
            let called = Party::from(Name::of(self.called_name(&flow.props)));
            let is_asking = **other != n1 && matches!(flow.stage, Stage::Connecting);
            is_asking && flow.props.dif == *dif && called == message.dst
        });
        let Some(asking) = asking.next().map(|(other, _)| *other) else {
            return false;
        };
        self.log.count("n1-to-itself");
        if self.member.is_none() {
            let reason = TO_ITSELF.to_string();
            let n1 = asking;
            self.log.push(Event::EnrollFailed { n1, reason });
        }
        // The end that requested the flow is requested again.
        for end in [asking, n1] {
            self.drop_neighbour(now, end, TO_ITSELF, dt);
        }
        true
    }
}
