//! Virtual networks on demand.
//!
//! A virtual network (VNet) consists of nodes and links that an operator asks for. They are virtual
//! machines and virtual links on the infrastructure of providers. The roles and terms are those of
//! P. Papadimitriou, O. Maennel, A. Greenhalgh, A. Feldmann and L. Mathy, *Implementing Network
//! Virtualization for a Future Internet* (2009): the virtual network operator (VNO) writes a
//! [`document::Document`], the virtual network provider (VNP) splits it among physical
//! infrastructure providers (PIP).
//!
//! Modules [`vno`], [`vnp`] and [`pip`] are the roles, [`message`] has the messages between them.
//! The roles are state machines without I/O: time, randomness and the [`store`] are arguments.
//! `docs/explanation/vnet.md` describes how they work together.
#![forbid(unsafe_code)]

pub mod access;
pub mod base64_text;
pub mod division;
pub mod document;
pub mod exec_lines;
mod founders;
pub mod grant;
pub mod host_part;
pub mod impairment;
pub mod layout;
pub mod message;
pub mod names;
pub mod origin;
pub mod pip;
pub mod progress;
mod reason_cache;
pub mod report;
pub mod store;
pub mod store_copy;
pub mod timing;
pub mod trace;
pub mod vno;
pub mod vnp;
pub mod whole;
