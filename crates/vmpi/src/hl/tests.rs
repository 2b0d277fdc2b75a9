//! Two endpoints, one clock.
