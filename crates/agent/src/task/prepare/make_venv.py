"""Makes the Python environment of one job, in the directory that is named.

Run by the agent as `python -c`, with the Python that the job would get. The environment sees everything that this Python
sees, and has a `pip` of its own. Must not need the network, and must not write anywhere else.
"""
import os
import site
import sys
import sysconfig
import venv

PIP = """#!/bin/sh
# Installs into this job's environment only.
python="${0%/*}/python"
"$python" -c 'import pip' 2>/dev/null || "$python" -m ensurepip --default-pip >&2 || exit
exec "$python" -m pip "$@"
"""

where = sys.argv[1]
# With Debian's or any other pip that is there already: a copy of it would take seconds.
venv.EnvBuilder(system_site_packages=True, symlinks=True, with_pip=False).create(where)
for name in ("pip", "pip3"):
    path = os.path.join(where, "bin", name)
    with open(path, "w") as file:
        file.write(PIP)
    os.chmod(path, 0o755)

if sys.prefix != sys.base_prefix:
    # This Python is in an environment itself, and a new one would see only the Python behind it.
    packages = sysconfig.get_path("purelib", vars={"base": where, "platbase": where})
    with open(os.path.join(packages, "outer.pth"), "w") as file:
        for outer in site.getsitepackages():
            file.write("import site; site.addsitedir(%r)\n" % outer)
