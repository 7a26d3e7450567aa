"""Elastic jobs: trainings whose number of processes changes while they run. `launch` goes from options to a job, `driver` runs
it, `discovery` finds its hosts, `rendezvous` answers its processes. Which processes form which generation is decided in Rust, by
the same driver as in `corro run`."""
