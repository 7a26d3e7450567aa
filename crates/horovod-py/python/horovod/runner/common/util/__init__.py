"""The launcher's tools: hosts, settings, processes, secrets. Entered through its modules; holds nothing itself."""
