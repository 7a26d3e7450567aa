//! Keras' JSON description of the network and its training: layers, loss, optimizer. Uses only keys that both Keras 3
//! and Keras 2.2 know; everything else has its default.

use serde_json::{Value, json};

use super::Schedule;
use crate::network::{CHANNELS, CLASSES, DROPOUTS, SIDE};

/// A layer as in the tutorial's script.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    pub name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Convolution {
        filters: usize,
        padding: &'static str,
    },
    Activation(&'static str),
    Pooling,
    /// Index in [`DROPOUTS`].
    Dropout(usize),
    Flatten,
    Dense {
        units: usize,
    },
}

const fn layer(name: &'static str, kind: Kind) -> Layer {
    Layer { name, kind }
}

pub const LAYERS: [Layer; 18] = [
    layer("conv2d", Kind::Convolution { filters: 32, padding: "same" }),
    layer("activation", Kind::Activation("relu")),
    layer("conv2d_1", Kind::Convolution { filters: 32, padding: "valid" }),
    layer("activation_1", Kind::Activation("relu")),
    layer("max_pooling2d", Kind::Pooling),
    layer("dropout", Kind::Dropout(0)),
    layer("conv2d_2", Kind::Convolution { filters: 64, padding: "same" }),
    layer("activation_2", Kind::Activation("relu")),
    layer("conv2d_3", Kind::Convolution { filters: 64, padding: "valid" }),
    layer("activation_3", Kind::Activation("relu")),
    layer("max_pooling2d_1", Kind::Pooling),
    layer("dropout_1", Kind::Dropout(1)),
    layer("flatten", Kind::Flatten),
    layer("dense", Kind::Dense { units: 512 }),
    layer("activation_4", Kind::Activation("relu")),
    layer("dropout_2", Kind::Dropout(2)),
    layer("dense_1", Kind::Dense { units: CLASSES }),
    layer("activation_5", Kind::Activation("softmax")),
];

/// The attribute `model_config`.
pub fn model() -> Value {
    // Keras 2 uses `batch_input_shape`; Keras 3 prefers `batch_shape` and accepts both.
    let images = json!({
        "class_name": "InputLayer",
        "config": { "name": "input_layer", "batch_input_shape": [null, SIDE, SIDE, CHANNELS], "dtype": "float32", "sparse": false },
    });
    let layers: Vec<Value> = std::iter::once(images).chain(LAYERS.iter().map(Layer::config)).collect();
    json!({ "class_name": "Sequential", "config": { "name": "sequential", "layers": layers } })
}

/// The attribute `training_config`, for Keras 3 only: Keras 2.2 has other optimizer keys and must load the model with
/// `compile=False`. Keras 3 expresses decay as a learning rate schedule.
pub fn training(schedule: Schedule) -> Value {
    let rate = json!({
        "module": "keras.optimizers.schedules",
        "class_name": "InverseTimeDecay",
        "registered_name": null,
        "config": {
            "initial_learning_rate": schedule.rate,
            "decay_steps": 1,
            "decay_rate": schedule.decay,
            "staircase": false,
            "name": "InverseTimeDecay",
        },
    });
    json!({
        "loss": "categorical_crossentropy",
        "metrics": ["accuracy"],
        "loss_weights": null,
        "weighted_metrics": null,
        "optimizer_config": {
            "class_name": "RMSprop",
            "config": { "name": OPTIMIZER, "learning_rate": rate, "rho": 0.9, "momentum": 0.0, "epsilon": 1e-7, "centered": false },
        },
    })
}

/// Keras' name of the optimizer, and of the group with its state.
pub const OPTIMIZER: &str = "rmsprop";

impl Layer {
    fn config(&self) -> Value {
        let (class_name, mut config) = match self.kind {
            Kind::Convolution { filters, padding } => (
                "Conv2D",
                json!({
                    "filters": filters,
                    "kernel_size": [3, 3],
                    "strides": [1, 1],
                    "padding": padding,
                    "data_format": "channels_last",
                    "dilation_rate": [1, 1],
                    "activation": "linear",
                    "use_bias": true,
                }),
            ),
            Kind::Activation(activation) => ("Activation", json!({ "activation": activation })),
            Kind::Pooling => (
                "MaxPooling2D",
                json!({ "pool_size": [2, 2], "strides": [2, 2], "padding": "valid", "data_format": "channels_last" }),
            ),
            Kind::Dropout(place) => ("Dropout", json!({ "rate": f64::from(DROPOUTS[place].dropped) / 256.0 })),
            Kind::Flatten => ("Flatten", json!({ "data_format": "channels_last" })),
            Kind::Dense { units } => ("Dense", json!({ "units": units, "activation": "linear", "use_bias": true })),
        };
        config["name"] = self.name.into();
        config["trainable"] = true.into();
        json!({ "class_name": class_name, "config": config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::PARAMETERS;

    #[test]
    fn trainable_layers_match_the_network() {
        let learns = |layer: &&Layer| matches!(layer.kind, Kind::Convolution { .. } | Kind::Dense { .. });
        let kernels: Vec<_> = PARAMETERS.iter().filter(|parameter| parameter.kind == "kernel").collect();
        assert_eq!(LAYERS.iter().filter(learns).count(), kernels.len());
        for (layer, kernel) in LAYERS.iter().filter(learns).zip(kernels) {
            let (Kind::Convolution { filters: out, .. } | Kind::Dense { units: out }) = layer.kind else {
                unreachable!()
            };
            assert_eq!((layer.name, Some(&out)), (kernel.layer, kernel.shape.last()));
        }
    }
}
