//! Data transfer of several members, wired by hand without layer management.

mod net;

mod flows;
