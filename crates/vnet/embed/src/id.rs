//! Ids: integers from 0, each of a type of its own.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The place in the list that it numbers.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of a place in a list; lists are shorter than 2^32.
            #[must_use]
            pub const fn of(index: usize) -> Self {
                Self(index as u32)
            }
        }
    )*};
}

ids! {
    /// A host of the substrate: its place in the list of hosts.
    HostId;
    /// A link of the substrate: its place in the list of links.
    LinkId;
    /// A provider of hosts; the caller numbers them.
    ProviderId;
    /// Where a host is; the caller numbers locations.
    Location;
    /// A property of a host, such as huge pages; the caller numbers them.
    Label;
    /// A node of a request: its place in the list of nodes.
    NodeId;
    /// A link of a request: its place in the list of links.
    VirtualLinkId;
}
