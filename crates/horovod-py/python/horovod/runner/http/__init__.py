"""The key-value store for the rendezvous of a job: server and client."""
