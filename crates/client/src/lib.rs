//! The application library and its C ABI.
