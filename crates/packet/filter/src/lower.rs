//! Translates conditions into a program.
//!
//! Each test becomes a block with two successors, one for each outcome. If a successor's outcome is
//! already known from an earlier test, the jump skips it. The meaning stays the same: the earlier
//! test has loaded the same field, so the frame is long enough.

use crate::condition::{Conditions, Id, Node};
use crate::error::FilterError;
use crate::program::{Compare, Instruction, Program, Step, Test};

/// A block's number, or the end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Return(bool),
    /// A block with a lower number than the block that jumps to it.
    Block(u32),
}

#[derive(Clone, Debug)]
enum Work<'a> {
    Test(Test),
    Relation {
        steps: &'a [Step],
        compare: Compare,
        left: u8,
        right: u8,
    },
}

#[derive(Clone, Debug)]
struct Block<'a> {
    work: Work<'a>,
    yes: Target,
    no: Target,
}

/// Translates a condition into a program; without a condition the program accepts every frame.
pub(crate) fn lower(conditions: &Conditions, root: Option<Id>) -> Result<Program, FilterError> {
    let mut blocks = Blocks {
        conditions,
        blocks: Vec::new(),
    };
    let entry = match root {
        Some(root) => blocks.lower(root, Target::Return(true), Target::Return(false)),
        None => Target::Return(true),
    };
    let mut blocks = blocks.blocks;
    let is_used = thread(&mut blocks, entry);
    emit(&blocks, &is_used)
}

struct Blocks<'a> {
    conditions: &'a Conditions,
    /// Blocks jump only to blocks with lower numbers.
    blocks: Vec<Block<'a>>,
}

impl Blocks<'_> {
    /// Makes the blocks of a condition, which continue at `yes` or `no`, and returns the first of
    /// them. The recursion descends into right operands only, so it is as deep as the parentheses.
    fn lower(&mut self, mut id: Id, mut yes: Target, mut no: Target) -> Target {
        let conditions = self.conditions;
        let work = loop {
            match conditions.node(id) {
                Node::And(first, second) => {
                    yes = self.lower(*second, yes, no);
                    id = *first;
                }
                Node::Or(first, second) => {
                    no = self.lower(*second, yes, no);
                    id = *first;
                }
                Node::Not(of) => {
                    std::mem::swap(&mut yes, &mut no);
                    id = *of;
                }
                Node::Test(test) => break Work::Test(*test),
                Node::Relation {
                    steps,
                    compare,
                    left,
                    right,
                } => {
                    let (compare, left, right) = (*compare, *left, *right);
                    break Work::Relation {
                        steps,
                        compare,
                        left,
                        right,
                    };
                }
            }
        };
        self.blocks.push(Block { work, yes, no });
        Target::Block(self.blocks.len() as u32 - 1)
    }
}

/// Outcomes of tests that are the same on every path to a block.
type Facts = Vec<(Test, bool)>;

/// Largest number of outcomes that are remembered, and most jumps that are followed. Both bound the
/// compile time.
const FACTS_MAX: usize = 48;
const STEPS_MAX: usize = 256;

/// Makes jumps skip tests whose outcome is known. Returns which blocks can be reached.
fn thread(blocks: &mut [Block<'_>], entry: Target) -> Vec<bool> {
    let mut facts: Vec<Option<Facts>> = vec![None; blocks.len()];
    if let Target::Block(first) = entry {
        facts[first as usize] = Some(Facts::new());
    }
    for at in (0..blocks.len()).rev() {
        let Some(known) = facts[at].take() else {
            continue;
        };
        for outcome in [true, false] {
            let mut then = known.clone();
            if let Work::Test(test) = blocks[at].work
                && then.len() < FACTS_MAX
            {
                then.push((test, outcome));
            }
            let from = if outcome {
                blocks[at].yes
            } else {
                blocks[at].no
            };
            let to = led_on(blocks, from, &then);
            if let Target::Block(next) = to {
                let known_at_next = &mut facts[next as usize];
                match known_at_next {
                    Some(facts) => facts.retain(|fact| then.contains(fact)),
                    None => *known_at_next = Some(then),
                }
            }
            let jump = if outcome {
                &mut blocks[at].yes
            } else {
                &mut blocks[at].no
            };
            *jump = to;
        }
        facts[at] = Some(known);
    }
    facts.iter().map(Option::is_some).collect()
}

fn led_on(blocks: &[Block<'_>], from: Target, known: &Facts) -> Target {
    let mut target = from;
    for _ in 0..STEPS_MAX {
        let Target::Block(at) = target else {
            return target;
        };
        let block = &blocks[at as usize];
        let Work::Test(test) = &block.work else {
            return target;
        };
        target = match known.iter().find_map(|fact| decided(fact, test)) {
            Some(true) => block.yes,
            Some(false) => block.no,
            None => return target,
        };
    }
    target
}

/// The outcome of `test`, if the known outcome of another test determines it.
fn decided((known, outcome): &(Test, bool), test: &Test) -> Option<bool> {
    if (known.field, known.mask) != (test.field, test.mask) {
        return None;
    }
    if known.compare == Compare::Equal && *outcome {
        return Some(test.compare.holds(known.value, test.value));
    }
    (known == test).then_some(*outcome)
}

/// Writes the reachable blocks one after the other, beginning with the first.
fn emit(blocks: &[Block<'_>], is_used: &[bool]) -> Result<Program, FilterError> {
    let length = |block: &Block<'_>| match &block.work {
        Work::Test(_) => 1,
        Work::Relation { steps, .. } => steps.len() + 1,
    };
    let mut places = vec![0; blocks.len()];
    let mut end = 0;
    for at in (0..blocks.len()).rev().filter(|at| is_used[*at]) {
        places[at] = end;
        end += length(&blocks[at]);
    }
    if end + 2 > usize::from(u16::MAX) {
        return Err(FilterError::Program {
            instructions: end + 2,
        });
    }
    let place = |target: Target| match target {
        Target::Return(true) => end as u16,
        Target::Return(false) => end as u16 + 1,
        Target::Block(at) => places[at as usize] as u16,
    };
    let mut instructions = Vec::with_capacity(end + 2);
    for at in (0..blocks.len()).rev().filter(|at| is_used[*at]) {
        let block = &blocks[at];
        let (yes, no) = (place(block.yes), place(block.no));
        match block.work {
            Work::Test(test) => instructions.push(Instruction::Test { test, yes, no }),
            Work::Relation {
                steps,
                compare,
                left,
                right,
            } => {
                instructions.extend(steps.iter().map(|step| Instruction::Step(*step)));
                instructions.push(Instruction::Compare {
                    compare,
                    left,
                    right,
                    yes,
                    no,
                });
            }
        }
    }
    instructions.extend([Instruction::Return(true), Instruction::Return(false)]);
    Program::new(instructions)
}
