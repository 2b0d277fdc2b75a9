//! Tests of the CDAP messages and the connection machine.

mod connection;
mod messages;
