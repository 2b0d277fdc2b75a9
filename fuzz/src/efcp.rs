//! What the other end of a connection says.

/// An EFCP connection of one of three implementations, or an assembler of its UDFs, whose other
/// side is the fuzzer: the first byte chooses which. Nothing may go on for ever or hold more than
/// its bounds.
pub fn efcp(data: &[u8]) {
    match data.split_first() {
        Some((choice, script)) if choice % 2 == 0 => {
            carina_efcp::fuzz::connection(choice / 2, script);
        }
        Some((_, script)) => carina_efcp::fuzz::assembler(script),
        None => {}
    }
}
