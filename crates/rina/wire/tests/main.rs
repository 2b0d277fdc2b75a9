//! Tests of the headers on the wire.

mod dialects;
mod headers;
mod pci;
mod vmpi;
