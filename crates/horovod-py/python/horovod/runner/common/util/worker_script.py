"""The few lines of shell that every worker runs in, here or on another host. `safe_shell_exec` and `util.remote`
enter here.

The shell reads this script from its standard input, and the launcher keeps that pipe open as long as it lives. When
it ends, however it ended, a watcher in the worker's own process group ends the group. So nobody is left behind when
the launcher is killed, nor on another host when the connection breaks. What the script says, variables and secrets
among it, shows on no command line."""

import shlex
from typing import Mapping, Optional

# Between a polite end and a forced one.
GRACEFUL_TERMINATION_TIME_S = 5

# Braces, because the shell must have read all of it before the watcher takes over the pipe. The worker runs in the
# foreground: a shell would have a background command ignore Ctrl-C. The traps wait for the worker, who may need its
# time to end; what it left running in its group ends with it. The shell's own remarks ("Terminated") go nowhere: the
# launcher tells the status of the first to fail.
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
    """What the shell is to read. Variables and folder are those of another host; here they are inherited."""
    preparation = [f"export {name}={shlex.quote(value)}" for name, value in sorted((variables or {}).items())]
    if cwd is not None:
        preparation.append(f"cd {shlex.quote(cwd)} || exit 1")
    text = _SCRIPT.format(
        preparation="\n".join(preparation) or ":", command=shlex.quote(command), grace=GRACEFUL_TERMINATION_TIME_S
    )
    return text.encode(errors="surrogateescape")
