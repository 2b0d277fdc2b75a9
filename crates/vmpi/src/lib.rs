//! VMPI: channels between a virtual machine and its host over shared memory.
