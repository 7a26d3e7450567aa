"""Creates the Python virtual environment of one job in the given directory.

Run by the agent as `python -c`, with the Python that the job would use. The environment sees all packages of this Python
and has its own `pip`. Needs no network and writes nowhere else.
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
# Uses the pip that is installed: copying it would take seconds.
venv.EnvBuilder(system_site_packages=True, symlinks=True, with_pip=False).create(where)
for name in ("pip", "pip3"):
    path = os.path.join(where, "bin", name)
    with open(path, "w") as file:
        file.write(PIP)
    os.chmod(path, 0o755)

if sys.prefix != sys.base_prefix:
    # This Python is in a virtual environment itself; a new one would see only the base Python.
    packages = sysconfig.get_path("purelib", vars={"base": where, "platbase": where})
    with open(os.path.join(packages, "outer.pth"), "w") as file:
        for outer in site.getsitepackages():
            file.write("import site; site.addsitedir(%r)\n" % outer)
