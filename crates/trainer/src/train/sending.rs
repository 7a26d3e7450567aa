//! Between the backward pass and the other ranks: a gradient that is whole goes on its way at once, while the pass goes on with the layers
//! before it. The pass cannot fail, so the first error is kept until it has ended.

use corro_collectives::optimizer::{DistributedOptimizer, Optimizer, OptimizerError};

use crate::network::{Gradients, Weights};

pub struct Sending<'s, 'e, O> {
    optimizer: &'s mut DistributedOptimizer<'e, O>,
    failed: Option<OptimizerError>,
    /// Where gradients go that nobody will use.
    nowhere: Option<Weights>,
}

impl<'s, 'e, O: Optimizer> Sending<'s, 'e, O> {
    pub fn new(optimizer: &'s mut DistributedOptimizer<'e, O>) -> Self {
        Sending { optimizer, failed: None, nowhere: None }
    }

    /// The pass has ended; its gradients are under way.
    pub fn end(self) -> Result<(), OptimizerError> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl<O: Optimizer> Gradients for Sending<'_, '_, O> {
    fn room(&mut self, parameter: usize) -> &mut [f32] {
        match self.optimizer.room(parameter) {
            Ok(room) => room,
            Err(error) => {
                self.failed.get_or_insert(error);
                &mut self.nowhere.get_or_insert_with(Weights::zeros).0[parameter]
            }
        }
    }

    fn ready(&mut self, parameter: usize) {
        if let Err(error) = self.optimizer.ready(parameter) {
            self.failed.get_or_insert(error);
        }
    }
}
