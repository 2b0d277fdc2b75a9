//! Forwards control events of a normal IPCP's machine to `tracing`, with a target for each
//! component. No event is reported per PDU.

use std::sync::Arc;

use carina_api::IpcpId;
use carina_ipcp::{TraceEvent, TraceSink, Tracer};
use carina_time::Instant;
use tracing::{debug, info, warn};

/// The tracer of an IPCP. It does nothing if no subscriber wants events.
pub(super) fn tracer(ipcp: IpcpId, dif: String) -> Tracer {
    match tracing::level_filters::LevelFilter::current() {
        tracing::level_filters::LevelFilter::OFF => Tracer::default(),
        _ => Tracer::new(Arc::new(Sink { ipcp, dif })),
    }
}

struct Sink {
    ipcp: IpcpId,
    dif: String,
}

impl TraceSink for Sink {
    fn on_event(&self, _now: Instant, event: &TraceEvent<'_>) {
        let (ipcp, dif) = (&self.ipcp, self.dif.as_str());
        macro_rules! log {
            ($level:ident, $target:literal) => {
                $level!(target: $target, %ipcp, dif, "{event:?}")
            };
        }
        match event {
            TraceEvent::EnrollmentFailed { .. } => log!(warn, "carina::enrollment"),
            TraceEvent::EnrollmentStarted { .. } => log!(debug, "carina::enrollment"),
            TraceEvent::Enrolled { .. } | TraceEvent::Left { .. } => {
                log!(info, "carina::enrollment");
            }
            TraceEvent::NameConflict { .. } | TraceEvent::AddressConflict { .. } => {
                log!(warn, "carina::neighbours");
            }
            TraceEvent::NeighbourAdded { .. } | TraceEvent::NeighbourLost { .. } => {
                log!(info, "carina::neighbours");
            }
            TraceEvent::NameRegistered { .. }
            | TraceEvent::NameUnregistered { .. }
            | TraceEvent::NameUnknown { .. } => log!(debug, "carina::directory"),
            TraceEvent::FlowRequested { .. }
            | TraceEvent::FlowAllocated { .. }
            | TraceEvent::FlowRefused { .. }
            | TraceEvent::FlowEnded { .. } => log!(debug, "carina::flow_allocator"),
            TraceEvent::ConnectionFailed { .. } => log!(warn, "carina::efcp"),
            TraceEvent::ConnectionOpened { .. }
            | TraceEvent::ConnectionEstablished { .. }
            | TraceEvent::ConnectionClosed { .. }
            | TraceEvent::ConnectionStalled { .. }
            | TraceEvent::ConnectionResumed { .. }
            | TraceEvent::RetransmissionTimeout { .. } => log!(debug, "carina::efcp"),
            TraceEvent::N1Blocked { .. } => log!(warn, "carina::rmt"),
            TraceEvent::N1Added { .. } | TraceEvent::N1Lost { .. } => log!(info, "carina::rmt"),
            TraceEvent::FirstDrop { .. } => log!(info, "carina::rmt"),
            TraceEvent::PolicyChanged { .. } => log!(info, "carina::policy"),
            _ => log!(debug, "carina::ipcp"),
        }
    }
}
