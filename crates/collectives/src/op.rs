//! How elements are combined. The numbers are Horovod's constants, and travel.

/// What a reduction computes over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum, scaled by one over the number of ranks; cut toward zero for integers.
    Average = 0,
    /// Integers wrap.
    Sum = 1,
    /// The adaptive sum: vectors that point the same way are averaged, orthogonal ones added. For floats, on a power of two of ranks.
    Adasum = 2,
    /// NaN if any is.
    Min = 3,
    /// NaN if any is.
    Max = 4,
    /// Integers wrap.
    Product = 5,
}

impl ReduceOp {
    /// By number.
    pub const ALL: [ReduceOp; 6] =
        [ReduceOp::Average, ReduceOp::Sum, ReduceOp::Adasum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product];

    /// `None` for what no operation has.
    pub fn from_number(number: u8) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|op| *op as u8 == number)
    }

    /// What is done to two elements; `None` for Adasum, which looks at whole vectors.
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

/// Element by element: what kernels know.
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
