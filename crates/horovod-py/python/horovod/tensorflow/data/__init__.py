"""Upstream's compute service, which runs tf.data on hosts without ranks, is here. See `compute_service` for
alternatives."""
