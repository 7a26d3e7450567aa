"""Utilities of the launcher: hosts, settings, processes, secrets."""
