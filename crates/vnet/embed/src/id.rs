//! IDs: integers from 0, a separate type for each kind of thing.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The index in the list that the ID refers to.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The ID of an index; lists have fewer than 2^32 elements.
            #[must_use]
            pub const fn of(index: usize) -> Self {
                Self(index as u32)
            }
        }
    )*};
}

ids! {
    /// A host of the substrate: index in its list of hosts.
    HostId;
    /// A link of the substrate: index in its list of links.
    LinkId;
    /// A provider of hosts; numbered by the caller.
    ProviderId;
    /// A location of hosts; numbered by the caller.
    Location;
    /// A property of hosts, such as huge pages; numbered by the caller.
    Label;
    /// A node of a request: index in its list of nodes.
    NodeId;
    /// A link of a request: index in its list of links.
    VirtualLinkId;
}
