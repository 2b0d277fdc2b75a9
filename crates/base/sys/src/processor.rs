//! The kind of processor that this program runs on.

/// Whether the processor is emulated, for instance by QEMU's TCG. On an emulated processor other
/// instructions are fast than on a real one, and each switch to another address space costs
/// hundreds of look-ups of pages and code.
#[must_use]
pub fn is_emulated() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::__cpuid;
        let is_virtual = __cpuid(1).ecx & (1 << 31) != 0;
        // Leaf 0x4000_0000 names the hypervisor; TCG is "TCGTCGTCGTCG".
        is_virtual && __cpuid(0x4000_0000).ebx == u32::from_le_bytes(*b"TCGT")
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}
