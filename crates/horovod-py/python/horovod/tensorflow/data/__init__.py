"""Where upstream has its compute service, which runs tf.data on hosts without ranks. See `compute_service` for what to use instead."""
