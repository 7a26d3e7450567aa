"""Utilities of the launcher: ssh, threads, addresses, a cache."""
