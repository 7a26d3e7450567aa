"""`horovod.run`: calls a Python function in all ranks and collects the results. The function and the results pass
through a key-value server of their own, signed with the job's secret, because loading them executes code."""

import sys
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import cloudpickle

from horovod.runner.common.util import secret
from horovod.runner.common.util.hosts import parse_hosts
from horovod.runner.common.util.settings import Settings
from horovod.runner.gloo_run import JobFailed, gloo_run
from horovod.runner.http.http_client import put_data_into_kvstore, read_data_from_kvstore
from horovod.runner.http.http_server import KVStoreServer

_FUNC_SCOPE, _FUNC_KEY = "runfunc", "func"
_RESULT_SCOPE = "runfunc_result"

Call = Tuple[Callable[..., Any], Tuple[Any, ...], Mapping[str, Any]]


class Result(NamedTuple):
    """Result of one rank: a value, or the traceback and, if it can be pickled, the exception."""

    value: Any = None
    problem: Optional[str] = None
    exception: Optional[BaseException] = None


def run_func(
    call: Call,
    settings: Settings,
    nics: Sequence[str],
    env: Mapping[str, str],
    server_ip: str,
    executable: Optional[str],
) -> List[Any]:
    """Calls the function in every rank; returns results by rank."""
    key = settings.key or secret.make_secret_key()
    server = KVStoreServer(settings.verbose, "127.0.0.1" if server_ip == "127.0.0.1" else "0.0.0.0")
    port = server.start()
    server.store.put(_FUNC_SCOPE, _FUNC_KEY, secret.sign(key, cloudpickle.dumps(call)))
    command = [executable or sys.executable, "-m", "horovod.runner.run_task", server_ip, str(port)]
    try:
        gloo_run(settings, nics, env, server_ip, command)
        return _results(server, key, sum(host.slots for host in parse_hosts(settings.hosts or "")))
    except JobFailed as failed:
        signed = server.store.get(_RESULT_SCOPE, str(failed.rank))
        result = Result() if signed is None else _load(key, signed)
        if result.problem is None:
            raise
        raise RuntimeError(
            f"{failed}\nThe function raised in rank {failed.rank}:\n{result.problem}"
        ) from result.exception
    finally:
        server.stop()


def fetch_call(addr: str, port: int, key: bytes) -> Call:
    """Called in a rank: fetches the function and its arguments."""
    call: Call = cloudpickle.loads(secret.unsign(key, read_data_from_kvstore(addr, port, _FUNC_SCOPE, _FUNC_KEY)))
    return call


def send_result(addr: str, port: int, key: bytes, rank: int, result: Result) -> None:
    """Called in a rank: sends the result. ValueError if the value cannot be pickled."""
    try:
        message = cloudpickle.dumps(tuple(result))
    except Exception as problem:
        raise ValueError(f"The result of type {type(result.value).__name__} cannot be pickled: {problem}") from problem
    put_data_into_kvstore(addr, port, _RESULT_SCOPE, str(rank), secret.sign(key, message))


def _results(server: KVStoreServer, key: bytes, n_ranks: int) -> List[Any]:
    values = []
    for rank in range(n_ranks):
        signed = server.store.get(_RESULT_SCOPE, str(rank))
        if signed is None:
            raise RuntimeError(f"Rank {rank} ended without a result: did the function end the process itself?")
        values.append(_load(key, signed).value)
    return values


def _load(key: bytes, signed: bytes) -> Result:
    return Result(*cloudpickle.loads(secret.unsign(key, signed)))
