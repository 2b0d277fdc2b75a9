//! Members of rlite DIFs: wired to one another, and against messages captured from rlite.

mod net;

mod by_hand;
mod crossing;
mod enrollment;
mod flows;
mod hostile;
mod late;
mod losses;
mod networks;
mod replay;
mod restarts;
mod returning;
mod silence;
mod to_itself;
mod tools;
mod tracing;
