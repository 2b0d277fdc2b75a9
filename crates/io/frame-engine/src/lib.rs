//! The data plane of frames: apps with named ports, connected by bounded links to a graph.
//!
//! ```text
//!   Graph (what is wanted) --configure--> Network (what runs)
//!                                           +-------+  link   +-----+  link   +------+
//!                                           | source|-------->| hop |-------->| sink |
//!                                           +-------+ output  +-----+ output  +------+
//! ```
//!
//! A [`Graph`] names apps with their configuration, and links between their ports. A [`Network`]
//! runs a graph. When it is reconfigured, only the difference changes: apps with an unchanged
//! configuration keep running with their state, and links that remain keep their frames. In one
//! breath every app may pull frames from outside onto its output links. Then every app with frames
//! on its input links pushes them on, in the order of the links, so that a burst passes a whole
//! chain at once.
//!
//! [`Workers`] run the parts of a graph on several threads. Each has a network and a pool of
//! its own. A link between apps of two workers is a ring between their threads.
//!
//! A full link drops frames, unless it has back-pressure ([`WhenFull`]). With back-pressure, the
//! port that supplies the frames takes no more from outside, where frames wait as they would
//! without a graph.
//!
//! # Why frames have links of their own
//! SDUs of flows are *leases* of ring memory that end with the breath, on links with *credit*: a
//! reader that stops holds its writer back and nothing is lost (the crate `carina-engine`). A frame
//! owns its memory, waits on a link without a time limit, and is dropped and counted when a link is
//! full. A common type would make each kind pay for what only the other needs: a frame would pay a
//! check of its kind for each access to its bytes, a check of credit for each link, and four times
//! the bytes that move; an SDU would pay a copy into a frame. So there are two kinds of link, and a
//! crate for each. Where one thread moves both, `carina_engine::NetworkApp` makes a network an app
//! of the engine of SDUs, which visits it in the same breath as the apps of flows.
#![forbid(unsafe_code)]

mod app;
mod assignment;
mod back_pressure;
mod configure_error;
pub mod counter_file;
mod difference;
mod doorbell;
mod graph;
pub mod idle;
mod link;
mod neighbour;
mod network;
mod notices;
mod opening;
mod part;
mod ports;
mod rehearsal;
mod rest;
mod sole;
pub mod tap;
pub mod tap_file;
mod worker;
mod workers;

pub use self::app::{
    AnyConfig, AppConfig, AppContext, AppError, FrameApp, Opened, Outside, Port, PortList,
    PortNames, WhenFull, made,
};
pub use self::configure_error::{ConfigureError, WorkerError};
pub use self::difference::Difference;
pub use self::graph::{Graph, GraphError, LinkName, PortName, WORKERS_MAX};
pub use self::link::{FRAME_BURST, LINK_FRAMES, LinkCounts};
pub use self::network::Network;
pub use self::notices::{NOTICES_MAX, Notice, Notices};
pub use self::ports::Ports;
pub use self::sole::Sole;
pub use self::workers::{WorkerReport, Workers};
