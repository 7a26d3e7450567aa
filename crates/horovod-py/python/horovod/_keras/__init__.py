"""Code shared by horovod.keras and horovod.tensorflow.keras: optimizers, callbacks, loading. Private.

Reading order: `optimizer` (the wrapper), `backends` (gradient reduction), `jit` (compiled steps on TensorFlow),
`callbacks`, `values`, `loading`. Imports no framework before one is known to be in use.
"""
