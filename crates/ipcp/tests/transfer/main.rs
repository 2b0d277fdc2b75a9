//! Data transfer of several members, wired by hand without layer management.

mod net;

mod channels;
mod documented;
mod flows;
mod hostile;
mod life;
mod queues;
mod relaying;
