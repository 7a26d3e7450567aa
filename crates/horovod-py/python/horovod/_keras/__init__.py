"""What horovod.keras and horovod.tensorflow.keras share: optimizers, callbacks, loading. Never imported by users.

Reading order: `optimizer` (the wrapper), `backends` (how gradients are reduced), `jit` (compiled steps on TensorFlow), `callbacks`,
`values`, `loading`. Imports no framework until one is known to be in use.
"""
