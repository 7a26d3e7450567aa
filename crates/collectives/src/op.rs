//! Reduction operations. The numbers are Horovod's constants and are part of the wire format.

/// Operation of a reduction over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum divided by the number of ranks; integers are truncated toward zero.
    Average = 0,
    /// Integers wrap.
    Sum = 1,
    /// The adaptive sum: parallel vectors are averaged, orthogonal ones added. For floats, on a power of two of ranks.
    Adasum = 2,
    /// NaN if any input is.
    Min = 3,
    /// NaN if any input is.
    Max = 4,
    /// Integers wrap.
    Product = 5,
}

impl ReduceOp {
    /// All operations, by number.
    pub const ALL: [ReduceOp; 6] =
        [ReduceOp::Average, ReduceOp::Sum, ReduceOp::Adasum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product];

    /// `None` for an unknown number.
    pub fn from_number(number: u8) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|op| *op as u8 == number)
    }

    /// The elementwise operation; `None` for Adasum, which works on whole vectors.
    pub const fn combine(self) -> Option<Combine> {
        match self {
            ReduceOp::Average | ReduceOp::Sum => Some(Combine::Sum),
            ReduceOp::Min => Some(Combine::Min),
            ReduceOp::Max => Some(Combine::Max),
            ReduceOp::Product => Some(Combine::Product),
            ReduceOp::Adasum => None,
        }
    }
}

/// Elementwise operation of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    Sum,
    Min,
    Max,
    Product,
}

impl Combine {
    pub const ALL: [Combine; 4] = [Combine::Sum, Combine::Min, Combine::Max, Combine::Product];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_horovod() {
        for (number, op) in ReduceOp::ALL.into_iter().enumerate() {
            assert_eq!((op as usize, ReduceOp::from_number(number as u8)), (number, Some(op)));
        }
        assert_eq!(ReduceOp::from_number(6), None);
    }
}
