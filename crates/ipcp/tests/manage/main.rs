//! Layer management of whole members that are wired to one another.

mod net;

mod enrollment;
mod flows;
