//! Conditions: tests joined by and, or and not, stored in the order in which the parser makes them.

use crate::program::{Compare, Field, Size, Step, Test};

/// Identifies a condition in a [`Conditions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(u32);

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Test(Test),
    /// Steps that compute two registers, and the comparison of the two.
    Relation {
        steps: Vec<Step>,
        compare: Compare,
        left: u8,
        right: u8,
    },
    /// Holds if both hold; the second is tested only if the first holds.
    And(Id, Id),
    /// Holds if one of them holds; the second is tested only if the first does not hold.
    Or(Id, Id),
    Not(Id),
}

/// All conditions of one filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    nodes: Vec<Node>,
}

impl Conditions {
    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn add(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        Id(self.nodes.len() as u32 - 1)
    }

    pub(crate) fn and(&mut self, first: Id, second: Id) -> Id {
        self.add(Node::And(first, second))
    }

    pub(crate) fn or(&mut self, first: Id, second: Id) -> Id {
        self.add(Node::Or(first, second))
    }

    pub(crate) fn not(&mut self, of: Id) -> Id {
        self.add(Node::Not(of))
    }

    pub(crate) fn test(&mut self, field: Field, mask: u32, compare: Compare, value: u32) -> Id {
        self.add(Node::Test(Test {
            field,
            mask,
            compare,
            value,
        }))
    }

    pub(crate) fn equal(&mut self, field: Field, value: u32) -> Id {
        self.test(field, u32::MAX, Compare::Equal, value)
    }
}

/// A field at a fixed offset in the frame.
pub(crate) fn field(offset: u32, size: Size) -> Field {
    Field {
        offset,
        behind: None,
        size,
    }
}

/// The length of the frame, as a field.
pub(crate) const LENGTH: Field = Field {
    offset: 0,
    behind: None,
    size: Size::Length,
};
