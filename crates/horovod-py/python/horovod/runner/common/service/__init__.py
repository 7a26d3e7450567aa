"""Upstream's services of drivers, tasks and compute workers, for packages that start jobs in their own way."""
