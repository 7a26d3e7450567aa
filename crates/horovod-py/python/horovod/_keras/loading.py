"""Loads models saved with a distributed or a plain optimizer, so that training continues on all ranks."""

from typing import Any, Dict, List, Optional

from horovod._keras.optimizer import distribute_in_place


def load_model(
    keras: Any,
    filepath: Any,
    custom_optimizers: Optional[List[type]] = None,
    custom_objects: Optional[Dict[str, Any]] = None,
    compression: Any = None,
) -> Any:
    """`keras` is the module whose models.load_model reads the file."""
    objects = {kind.__name__: kind for kind in custom_optimizers or []}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is not None:
        _ensure_variables(model, filepath)
        distribute_in_place(model.optimizer, compression=compression)
    return model


def _ensure_variables(model: Any, filepath: Any) -> None:
    """Rebuilds the optimizer of an .h5 file. Keras 3 builds it on the model's own variables only, without those of its
    layers, and then it cannot step. The new optimizer gets the state from the file."""
    old = model.optimizer
    known = getattr(old, "_trainable_variables", None)
    if known is None or len(known) > 0 or not old.built or not model.trainable_variables:
        return
    new = type(old).from_config(old.get_config())
    new.build(model.trainable_variables)
    state = _state_in(filepath)
    if len(state) == len(new.variables):
        for variable, value in zip(new.variables, state):
            variable.assign(value)
    model.optimizer = new


def _state_in(filepath: Any) -> List[Any]:
    """The optimizer weights of an .h5 file, in order; empty for any other file."""
    import h5py

    if not h5py.is_hdf5(str(filepath)):
        return []
    with h5py.File(str(filepath), "r") as file:
        group = file.get("optimizer_weights")
        return [] if group is None else [group[name][()] for name in group.attrs.get("weight_names", [])]
