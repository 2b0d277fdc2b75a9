//! The data plane: packets, links, apps and the breath.
