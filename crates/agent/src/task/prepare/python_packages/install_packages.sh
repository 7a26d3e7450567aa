# Installs the packages of a requirements file with pip, then Horovod, unless it is there already.
# Arguments: Python, or nothing for the first in PATH; requirements file, or nothing; Horovod's wheel, or nothing.
python=$1 requirements=$2 wheel=$3
if [ -z "$python" ]; then
    python=$(command -v python || command -v python3) || { echo "there is no Python in PATH" >&2; exit 127; }
fi
"$python" -c 'import pip' 2>/dev/null || "$python" -m ensurepip --default-pip >&2 || exit
pip_install() { "$python" -m pip install --no-input --disable-pip-version-check "$@"; }
if [ -n "$requirements" ]; then
    pip_install -r "$requirements" || exit
fi
has_horovod='import importlib.util, sys; sys.exit(importlib.util.find_spec("horovod") is None)'
if [ -n "$wheel" ] && ! "$python" -c "$has_horovod"; then
    echo "Installing Horovod from $wheel"
    # Its dependencies come from the server's wheels, else from the index; without either, most of it works.
    pip_install --no-index "$wheel" 2>/dev/null || pip_install --retries 1 --timeout 15 "$wheel" ||
        pip_install --no-deps "$wheel"
fi
