//! What crosses ipc.sock and control.sock: names, flow specifications, messages.
