//! Members of rlite DIFs: wired to one another, and against what rlite itself has sent.

mod net;

mod enrollment;
mod flows;
mod hostile;
mod late;
mod networks;
mod replay;
mod tools;
mod tracing;
