//! Headers on the wire and on the VMPI: views and checks, no I/O.
