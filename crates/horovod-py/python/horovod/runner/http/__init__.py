"""The key-value store where the ranks of a job meet: server and client. Entered through its modules; holds nothing
itself."""
