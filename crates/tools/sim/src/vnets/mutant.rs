//! Safeguards that can be removed from the product, to test that the simulation detects their
//! absence.

/// A safeguard of virtual networks that is missing in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Stores do not compare revisions: of two writers, the last one wins.
    AnyWriteWins,
    /// Holds on resources never expire.
    HoldsNeverEnd,
    /// Parts of networks never expire, even after their VNP is lost.
    PartsNeverEnd,
    /// A host is not told to remove parts that its provider does not know.
    StraysStay,
    /// Stores do not record which hosts are drained.
    DrainsAreForgotten,
}

impl Mutant {
    /// All mutants.
    pub const ALL: [Mutant; 5] = [
        Mutant::AnyWriteWins,
        Mutant::HoldsNeverEnd,
        Mutant::PartsNeverEnd,
        Mutant::StraysStay,
        Mutant::DrainsAreForgotten,
    ];
}
