//! Programs: instructions that are checked once, and run for each frame.
//!
//! Jumps only go forward and stay inside the program, so a run takes at most as many steps as there
//! are instructions. A load beyond the end of the frame, and a division by zero, reject the frame,
//! as in the classic BPF of S. McCanne and V. Jacobson, *The BSD Packet Filter* (1993). One
//! instruction here loads, masks, compares and jumps, which takes four in BPF.

use crate::error::FilterError;

/// Bytes of a frame as a number in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Offset of the field in bytes. With `behind`, the offset excludes the length of the IPv4
    /// header.
    pub(crate) offset: u32,
    /// Offset of an IPv4 header in front of the field. The length of this header is added to
    /// `offset`.
    pub(crate) behind: Option<u16>,
    pub(crate) size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Byte,
    Half,
    Word,
    /// The length of the frame, in place of bytes.
    Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    Greater,
    GreaterOrEqual,
}

impl Compare {
    #[inline]
    pub(crate) fn holds(self, left: u32, right: u32) -> bool {
        match self {
            Compare::Equal => left == right,
            Compare::Greater => left > right,
            Compare::GreaterOrEqual => left >= right,
        }
    }
}

/// Compares a masked field with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) field: Field,
    pub(crate) mask: u32,
    pub(crate) compare: Compare,
    pub(crate) value: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

impl Operator {
    /// Computes with 32 bits, unsigned; `None` for a division by zero.
    #[inline]
    pub(crate) fn apply(self, left: u32, right: u32) -> Option<u32> {
        Some(match self {
            Operator::Add => left.wrapping_add(right),
            Operator::Subtract => left.wrapping_sub(right),
            Operator::Multiply => left.wrapping_mul(right),
            Operator::Divide => left.checked_div(right)?,
            Operator::Modulo => left.checked_rem(right)?,
            Operator::And => left & right,
            Operator::Or => left | right,
            Operator::Xor => left ^ right,
            Operator::ShiftLeft => left.checked_shl(right).unwrap_or(0),
            Operator::ShiftRight => left.checked_shr(right).unwrap_or(0),
        })
    }
}

/// A step of an arithmetic computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Constant {
        to: u8,
        value: u32,
    },
    Load {
        to: u8,
        field: Field,
    },
    /// Loads the field at its offset plus the register, into the same register.
    LoadAt {
        register: u8,
        field: Field,
    },
    Negate {
        register: u8,
    },
    Apply {
        operator: Operator,
        to: u8,
        with: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    Test {
        test: Test,
        yes: u16,
        no: u16,
    },
    Step(Step),
    Compare {
        compare: Compare,
        left: u8,
        right: u8,
        yes: u16,
        no: u16,
    },
    Return(bool),
}

/// Number of registers of a program.
pub(crate) const REGISTERS: usize = 16;

/// The instructions of a compiled filter. Every jump in them has been checked: it goes forward and
/// stays inside the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    instructions: Box<[Instruction]>,
}

impl Program {
    /// Checks that every jump goes forward and stays inside the program, that all registers exist,
    /// and that the last instruction returns.
    pub(crate) fn new(instructions: Vec<Instruction>) -> Result<Program, FilterError> {
        let count = instructions.len();
        let refused = || FilterError::Program {
            instructions: count,
        };
        if count > usize::from(u16::MAX) {
            return Err(refused());
        }
        for (at, instruction) in instructions.iter().enumerate() {
            let jumps = |to: u16| usize::from(to) > at && usize::from(to) < count;
            let exists = |register: u8| usize::from(register) < REGISTERS;
            let is_right = match *instruction {
                Instruction::Test { yes, no, .. } => jumps(yes) && jumps(no),
                Instruction::Compare {
                    left,
                    right,
                    yes,
                    no,
                    ..
                } => jumps(yes) && jumps(no) && exists(left) && exists(right),
                Instruction::Step(step) => {
                    at + 1 < count
                        && match step {
                            Step::Constant { to, .. } | Step::Load { to, .. } => exists(to),
                            Step::LoadAt { register, .. } | Step::Negate { register } => {
                                exists(register)
                            }
                            Step::Apply { to, with, .. } => exists(to) && exists(with),
                        }
                }
                Instruction::Return(_) => true,
            };
            if !is_right {
                return Err(refused());
            }
        }
        if count == 0 {
            return Err(refused());
        }
        let instructions = instructions.into_boxed_slice();
        Ok(Program { instructions })
    }

    /// Number of instructions, which is also the most steps of a run.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.instructions.len()
    }

    /// Whether the program accepts a frame.
    #[must_use]
    #[inline]
    pub fn run(&self, frame: &[u8]) -> bool {
        self.result(frame).unwrap_or(false)
    }

    fn result(&self, frame: &[u8]) -> Option<bool> {
        let mut registers = [0u32; REGISTERS];
        let mut at = 0;
        loop {
            match self.instructions.get(at)? {
                Instruction::Test { test, yes, no } => {
                    let value = load(&test.field, 0, frame)? & test.mask;
                    let holds = test.compare.holds(value, test.value);
                    at = usize::from(if holds { *yes } else { *no });
                }
                Instruction::Return(result) => return Some(*result),
                Instruction::Step(step) => {
                    run_step(step, &mut registers, frame)?;
                    at += 1;
                }
                Instruction::Compare {
                    compare,
                    left,
                    right,
                    yes,
                    no,
                } => {
                    let value = |register: u8| registers[usize::from(register) % REGISTERS];
                    let holds = compare.holds(value(*left), value(*right));
                    at = usize::from(if holds { *yes } else { *no });
                }
            }
        }
    }
}

fn run_step(step: &Step, registers: &mut [u32; REGISTERS], frame: &[u8]) -> Option<()> {
    let index = |register: u8| usize::from(register) % REGISTERS;
    match *step {
        Step::Constant { to, value } => registers[index(to)] = value,
        Step::Load { to, field } => registers[index(to)] = load(&field, 0, frame)?,
        Step::LoadAt { register, field } => {
            let register = &mut registers[index(register)];
            *register = load(&field, *register, frame)?;
        }
        Step::Negate { register } => {
            let register = &mut registers[index(register)];
            *register = register.wrapping_neg();
        }
        Step::Apply { operator, to, with } => {
            let right = registers[index(with)];
            let left = &mut registers[index(to)];
            *left = operator.apply(*left, right)?;
        }
    }
    Some(())
}

/// The value of a field whose offset is increased by `index`; `None` beyond the end of the frame.
#[inline(always)]
fn load(field: &Field, index: u32, frame: &[u8]) -> Option<u32> {
    let mut index = index;
    if let Some(header) = field.behind {
        let first = frame.get(usize::from(header))?;
        index = index.wrapping_add(u32::from(first & 0x0f) * 4);
    }
    let at = field.offset as usize + index as usize;
    match field.size {
        Size::Byte => frame.get(at).map(|byte| u32::from(*byte)),
        Size::Half => {
            let bytes = frame.get(at..)?.first_chunk()?;
            Some(u32::from(u16::from_be_bytes(*bytes)))
        }
        Size::Word => frame
            .get(at..)?
            .first_chunk()
            .map(|bytes| u32::from_be_bytes(*bytes)),
        Size::Length => Some(u32::try_from(frame.len()).unwrap_or(u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_could_run_astray_are_refused() {
        let field = Field {
            offset: 0,
            behind: None,
            size: Size::Byte,
        };
        let test = Test {
            field,
            mask: 1,
            compare: Compare::Equal,
            value: 1,
        };
        let end = Instruction::Return(true);
        let jump = |yes, no| Instruction::Test { test, yes, no };
        assert!(Program::new(vec![jump(1, 1), end]).is_ok());
        for wrong in [
            vec![],
            vec![jump(0, 1), end],
            vec![jump(1, 2), end],
            vec![Instruction::Step(Step::Constant { to: 0, value: 1 })],
            vec![Instruction::Step(Step::Negate { register: 16 }), end],
        ] {
            assert!(Program::new(wrong.clone()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn shifts_by_32_and_more_give_zero() {
        assert_eq!(Operator::ShiftLeft.apply(1, 32), Some(0));
        assert_eq!(Operator::ShiftRight.apply(1, u32::MAX), Some(0));
        assert_eq!(Operator::Divide.apply(1, 0), None);
    }
}
