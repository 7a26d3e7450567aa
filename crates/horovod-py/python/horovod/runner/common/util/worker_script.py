"""The shell script in which every worker runs, locally or on another host.

The shell reads this script from its standard input, and the launcher keeps that pipe open as long as it lives. When
the pipe closes for whatever reason, a watcher in the worker's process group kills the group. No process is left
behind when the launcher is killed, nor on another host when the connection breaks. The contents of the script,
including variables and secrets, appear on no command line.
"""

import shlex
from typing import Mapping, Optional

# Seconds between SIGTERM and SIGKILL.
GRACEFUL_TERMINATION_TIME_S = 5

# Braces, because the shell must have read the whole script before the watcher takes over the pipe. The worker runs in
# the foreground: a shell makes background commands ignore Ctrl-C. The traps wait for the worker, which may need time to
# end; processes that it left in its group are ended with it. Messages of the shell itself ("Terminated") are discarded:
# the launcher reports the status of the first failure.
_SCRIPT = """{{
exec 3<&0 </dev/null
{preparation}
trap : TERM INT HUP
( trap '' TERM INT HUP
  while read -r line; do :; done
  kill -TERM 0; sleep {grace}; kill -KILL 0 ) <&3 >/dev/null 2>&1 &
watcher=$!
exec 3<&- 4>&2 2>/dev/null
( exec 2>&4 4>&-; exec /bin/sh -c {command} )
status=$?
kill -KILL "$watcher"
trap '' TERM
kill -TERM 0
exit "$status"
}}
"""


def script(command: str, variables: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None) -> bytes:
    """The script for a command. Variables and directory are for another host; locally they are inherited."""
    preparation = [f"export {name}={shlex.quote(value)}" for name, value in sorted((variables or {}).items())]
    if cwd is not None:
        preparation.append(f"cd {shlex.quote(cwd)} || exit 1")
    text = _SCRIPT.format(
        preparation="\n".join(preparation) or ":", command=shlex.quote(command), grace=GRACEFUL_TERMINATION_TIME_S
    )
    return text.encode(errors="surrogateescape")
