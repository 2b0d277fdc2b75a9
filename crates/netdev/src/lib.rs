//! AF_PACKET rings, UDP and TCP as the shims use them, and the fault layer.
