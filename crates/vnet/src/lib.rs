//! Virtual networks on demand.
//!
//! A virtual network (VNet) is nodes and links that an operator wants, made of virtual machines and
//! virtual links out of what infrastructure providers have. The roles and the words are those of P.
//! Papadimitriou, O. Maennel, A. Greenhalgh, A. Feldmann and L. Mathy, *Implementing Network
//! Virtualization for a Future Internet* (2009): the virtual network operator (VNO) writes a
//! [`document::Document`], the virtual network provider (VNP) splits it among physical
//! infrastructure providers (PIP).
#![forbid(unsafe_code)]

pub mod division;
pub mod document;
pub mod host_part;
pub mod layout;
pub mod store;
