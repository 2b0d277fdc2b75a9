//! Tests of layer management with whole members, wired to one another.

mod net;

mod addresses;
mod directory;
mod enrollment;
mod flows;
mod hostile;
mod late;
mod leaving;
mod meeting;
mod name_conflict;
mod partition;
mod registrations;
mod to_itself;
mod tools;
mod tracing;
