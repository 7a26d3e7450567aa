"""Elastic training with Keras on TensorFlow in an elastic job that begins with one rank: graphs made then reduce gradients when others
have come. Not run by spmd.py: the test starts processes itself."""

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from elastic_job import Job

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False


def _train():
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd
    from elastic_job import note
    from horovod import _core
    from horovod.elastic.objects import broadcast_object
    from horovod.tensorflow import allgather_object

    hvd.init()
    process = int(os.environ["CORRO_ELASTIC_PROCESS"])
    tf.keras.utils.set_random_seed(process)
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01, momentum=0.9)), loss="mse")
    # Every process has other data: without a reduction the models would differ.
    x = np.random.RandomState(process).rand(16, 3).astype("float32")
    y = x.sum(1, keepdims=True)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    @hvd.elastic.run
    def train(state):
        callbacks = [hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.CommitStateCallback(state)]
        # Rank 0 decides for all whether the test has seen enough.
        while not broadcast_object(os.path.exists("stop")):
            model.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=callbacks)
            state.epoch += 1
            place = {"generation": _core.generation(), "rank": hvd.rank(), "size": hvd.size()}
            weights = allgather_object(np.concatenate([value.flatten() for value in model.get_weights()]).tolist())
            equal = all(other == weights[0] for other in weights)
            note(process=process, pid=os.getpid(), batch=state.epoch, equal=equal, **place)

    train(state)


def test_a_training_that_begins_alone_is_joined_by_others(tmp_path):
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    job = Job(tmp_path, "--min-np", "1", hosts="localhost:1", script=__file__, PYTHONPATH=path)
    try:
        first, _ = job.await_size(1)
        job.set_hosts("localhost:1,127.0.0.1:2")
        second, before = job.await_size(3, after=first)
        # More than one epoch: the first may still have begun with equal models.
        job.await_steps(len(job.steps()) + 9)
        job.kill(before[2])
        job.await_size(1, after=second)
        assert job.stop() == 0, job.output()
        assert all(step["equal"] for step in job.steps()), json.dumps(job.steps()[-20:])
    finally:
        job.close()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _train()
