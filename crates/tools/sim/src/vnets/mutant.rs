//! What may be taken out of the product, to see that runs find that it is missing.

/// Something that keeps virtual networks right and is not there in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Stores compare nothing: of two that write, the last one wins.
    AnyWriteWins,
    /// What is held is held for ever.
    HoldsNeverEnd,
    /// What is made stays for ever, also when its VNP is gone.
    PartsNeverEnd,
    /// A host is not told to remove what its provider knows nothing of.
    StraysStay,
    /// Stores do not keep which hosts are drained.
    DrainsAreForgotten,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 5] = [
        Mutant::AnyWriteWins,
        Mutant::HoldsNeverEnd,
        Mutant::PartsNeverEnd,
        Mutant::StraysStay,
        Mutant::DrainsAreForgotten,
    ];
}
