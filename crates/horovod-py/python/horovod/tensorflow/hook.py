"""Session hook of TensorFlow 1 that broadcasts variables when a session starts. Only for scripts that use sessions."""

from typing import Any

import tensorflow as tf

from horovod.tensorflow.functions import broadcast_global_variables


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks the variables of `root_rank` once the session exists."""

    def __init__(self, root_rank: int, device: str = ""):
        super().__init__()
        self.root_rank, self.device, self.broadcast_op = root_rank, device, None

    def begin(self) -> None:
        if self.broadcast_op is None or self.broadcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.broadcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.broadcast_op)
