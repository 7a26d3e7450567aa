"""Prints what an environment made with this Python depends on: the version, the real path, and the packages it sees.

Run by the agent as `python -c`. One line each.
"""
import hashlib
import os
import sys

print(sys.version.replace("\n", " "))
print(os.path.realpath(sys.executable))
packages = set()
for directory in sys.path:
    if os.path.basename(directory) in ("site-packages", "dist-packages"):
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        # The names contain the versions.
        packages.update(name for name in names if name.endswith((".dist-info", ".egg-info", ".egg-link", ".pth")))
print(hashlib.sha256("\n".join(sorted(packages)).encode()).hexdigest())
