"""Modules shared by launchers of any kind."""
