//! Guests: kernel and initramfs, QEMU command lines, QMP.
