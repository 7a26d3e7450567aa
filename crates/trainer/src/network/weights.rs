//! One value for each parameter of the network: weights, gradients or optimizer state.

use corro_collectives::optimizer::ParamStorage;

use super::PARAMETERS;

/// By parameter, in the order of [`PARAMETERS`].
#[derive(Clone, Debug, PartialEq)]
pub struct Weights(pub Vec<ParamStorage>);

impl Weights {
    pub fn zeros() -> Weights {
        Weights(PARAMETERS.iter().map(|parameter| vec![0.0; parameter.size()].into()).collect())
    }

    pub fn slices_mut(&mut self) -> Vec<&mut [f32]> {
        self.0.iter_mut().map(|values| &mut **values).collect()
    }
}
