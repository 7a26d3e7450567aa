"""Reduction of the gradients of one step. Used by the tape, the optimizers of TensorFlow 1 and those of Keras.

All gradients of a step form one batch: they are submitted together and waited for together.
"""

from typing import Any, Callable, List, Optional, Tuple

import tensorflow as tf

from horovod import _core
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.util import split_list
from horovod.tensorflow.collectives import check_sparse
from horovod.tensorflow.mpi_ops import (
    Adasum,
    Average,
    check_num_rank_power_of_2,
    member_count,
    rank,
    size,
    size_op,
    wire_name,
)
from horovod.tensorflow.requests import Request, execute
from horovod.tensorflow.util import in_elastic_graph, key, registered_id


class Reduction:
    """Options of a gradient reduction, validated once."""

    def __init__(
        self,
        scope: str,
        compression: Any,
        sparse_as_dense: bool,
        op: int,
        gradient_predivide_factor: float,
        groups: Any,
        process_set: ProcessSet,
    ):
        if gradient_predivide_factor != 1.0 and op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if op == Adasum and process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        self.scope, self.compression, self.sparse_as_dense, self.op = scope, compression, sparse_as_dense, op
        self.prescale, self.postscale = 1.0 / gradient_predivide_factor, gradient_predivide_factor
        self.groups, self.process_set = checked_groups(groups), process_set

    def __call__(self, gradients: List[Any], variables: Optional[List[Any]] = None, use_generic_names: bool = True) -> List[Any]:
        """Reduces the gradients. None stays None. Without other ranks, or outside of the process set, gradients are
        returned unchanged."""
        gradients = [self._densed(gradient) for gradient in gradients]
        if not any(gradient is not None for gradient in gradients):
            return gradients
        if in_elastic_graph():
            return self._reduced_if_not_alone(gradients, variables, use_generic_names)
        if not self.is_needed():
            return gradients
        return self._reduced(gradients, variables, use_generic_names)

    def is_needed(self) -> bool:
        members = _core.process_set_ranks(process_set_id(self.process_set))
        return rank() in members and len(members) > 1

    def _densed(self, gradient: Any) -> Any:
        if self.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
            return tf.convert_to_tensor(gradient)
        return gradient

    def _reduced_if_not_alone(self, gradients: List[Any], variables: Optional[List[Any]], use_generic_names: bool) -> List[Any]:
        """In elastic training a graph may outlive a change of the number of ranks, so the size is checked when it runs."""
        there = [number for number, gradient in enumerate(gradients) if gradient is not None]
        if rank() not in _core.process_set_ranks(process_set_id(self.process_set)):
            return gradients
        given = [gradients[number] for number in there]
        mine = None if variables is None else [variables[number] for number in there]
        several = size_op(process_set_id(self.process_set)) > 1
        reduced = tf.cond(several, lambda: self._reduced(given, mine, use_generic_names), lambda: _unchanged(given))
        results = list(gradients)
        for number, gradient in zip(there, reduced):
            results[number] = gradient
        return results

    def _reduced(self, gradients: List[Any], variables: Optional[List[Any]], use_generic_names: bool) -> List[Any]:
        if self.op == Adasum:
            check_num_rank_power_of_2(size())
        requests: List[Request] = []
        # For each gradient: extracts its result from those of the requests, and restores its original form.
        finish: List[Callable[[List[List[Any]]], Any]] = [lambda results: None for _ in gradients]
        dense = []
        for number, gradient in enumerate(gradients):
            if isinstance(gradient, tf.IndexedSlices):
                finish[number] = self._ask_sparse(gradient, number, requests)
            elif gradient is not None:
                dense.append(number)
        for members, grouped in self._grouped(dense, variables):
            request_idx, short = len(requests), []
            for place, number in enumerate(members):
                tensor, context = self.compression.compress(tf.convert_to_tensor(gradients[number]))
                short.append(tensor)
                finish[number] = self._finisher(request_idx, place, context)
            name = self._name(members[0], short, grouped, use_generic_names)
            requests.append(self._request(_core.ALLREDUCE, name, short, grouped))
        results = execute(requests)
        return [make(results) for make in finish]

    def _request(self, kind: int, name: str, tensors: List[Any], grouped: bool = False) -> Request:
        members = registered_id(self.process_set)
        if kind == _core.ALLGATHER:
            return Request(kind, name, tensors, process_set=members)
        return Request(kind, name, tensors, self.op, self.prescale, self.postscale, process_set=members, grouped=grouped)

    def _finisher(self, request_idx: int, place: int, context: Any) -> Callable[[List[List[Any]]], Any]:
        return lambda results: self.compression.decompress(results[request_idx][place], context)

    def _ask_sparse(self, gradient: tf.IndexedSlices, number: int, requests: List[Request]) -> Callable[[List[List[Any]]], Any]:
        check_sparse(self.op, self.prescale, self.postscale)
        request_idx, n_members = len(requests), member_count(self.process_set)
        for part in ("values", "indices"):
            name = wire_name("HorovodAllgather", [], f"{self.scope}/grad_{number}_{part}")
            requests.append(self._request(_core.ALLGATHER, name, [getattr(gradient, part)]))

        def finish(results: List[List[Any]]) -> tf.IndexedSlices:
            values, indices = results[request_idx][0], results[request_idx + 1][0]
            if self.op == Average:
                values = values / tf.cast(n_members, values.dtype)
            return tf.IndexedSlices(values, indices, dense_shape=gradient.dense_shape)

        return finish

    def _grouped(self, numbers: List[int], variables: Optional[List[Any]]) -> List[Tuple[List[int], bool]]:
        """Groups of gradients, and whether each is submitted as a group."""
        if isinstance(self.groups, int) and self.groups > 0:
            return [(part, True) for part in split_list(numbers, min(self.groups, len(numbers))) if part]
        if isinstance(self.groups, list) and variables is not None:
            place = {key(variables[number]): number for number in numbers}
            parts = [[place[key(v)] for v in group if key(v) in place] for group in self.groups]
            taken = {number for part in parts for number in part}
            return [(part, True) for part in parts if part] + [([n], False) for n in numbers if n not in taken]
        return [([number], False) for number in numbers]

    def _name(self, first: int, tensors: List[Any], grouped: bool, use_generic_names: bool) -> str:
        if use_generic_names or tf.executing_eagerly():
            return wire_name("HorovodAllreduce", tensors, f"{self.scope}/grad_{first}")
        with tf.name_scope(self.scope):
            return wire_name("HorovodGroupedAllreduce" if grouped else "HorovodAllreduce", tensors, None)


def _make_allreduce_grads_fn(
    name: str,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    op: int,
    gradient_predivide_factor: float = 1.0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Reduction:
    """`name` and `_Allreduce` form the name scope of the operations. Devices are ignored: everything is reduced in main
    memory."""
    return Reduction(
        f"{name}_Allreduce", compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set
    )


def checked_groups(groups: Any, num_groups: int = 0) -> Any:
    """Validates groups: None, a number, or a list of lists of variables."""
    if num_groups != 0:
        groups = num_groups if groups is None else groups
    if groups is None or groups == 0:
        return None
    if isinstance(groups, (list, tuple)):
        for group in groups:
            if not isinstance(group, (list, tuple)):
                raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
        variables = [key(v) for group in groups for v in group]
        if len(variables) != len(set(variables)):
            raise ValueError("A variable can only appear once in groups.")
        return [list(group) for group in groups]
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 0:
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    return groups


def scale_local(gradient: Any, n_members: Any) -> Any:
    """Local gradients are divided too, so that they weigh as much as averaged ones."""
    if gradient is None or (isinstance(n_members, int) and n_members == 1):
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values / tf.cast(n_members, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, dense_shape=gradient.dense_shape)
    return gradient / tf.cast(n_members, gradient.dtype)


def _unchanged(gradients: List[Any]) -> List[Any]:
    def same(gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(
                tf.identity(gradient.values), tf.identity(gradient.indices), dense_shape=gradient.dense_shape
            )
        return tf.identity(gradient)

    return [same(gradient) for gradient in gradients]
