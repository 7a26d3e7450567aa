"""`horovod.run`: calls a Python function in all ranks and collects the results. The function and the results pass
through a key-value server of their own, signed with the job's secret, because loading them executes code."""

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import cloudpickle

from horovod.runner.common.util import secret
from horovod.runner.common.util.hosts import parse_hosts
from horovod.runner.common.util.settings import BaseSettings, Settings
from horovod.runner.gloo_run import JobFailed, gloo_run, gloo_run_elastic
from horovod.runner.http.http_client import put_data_into_kvstore, read_data_from_kvstore
from horovod.runner.http.http_server import KVStoreServer

if TYPE_CHECKING:
    from horovod.runner.elastic.settings import ElasticSettings

FROM_ENVIRONMENT = "from-environment"
"""Instead of the server's address: that of the rendezvous server, which runs beside it."""

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
    with _serving(call, settings, server_ip == "127.0.0.1") as (server, key, port):
        try:
            gloo_run(settings, nics, env, server_ip, _command(executable, server_ip, port))
        except JobFailed as failed:
            raise _with_exception(failed, server, key, str(failed.rank), f"rank {failed.rank}")
        n_ranks = sum(host.slots for host in parse_hosts(settings.hosts or ""))
        return _results(server, key, [str(rank) for rank in range(n_ranks)])


def run_func_elastic(
    call: Call, settings: "ElasticSettings", nics: Sequence[str], env: Mapping[str, str], executable: Optional[str]
) -> List[Any]:
    """Calls the function in every process of an elastic job; returns the results of the last generation, by rank."""
    with _serving(call, settings, not settings.has_other_hosts) as (server, key, port):
        try:
            # Where processes on other hosts reach this one is not known before they start.
            last = gloo_run_elastic(settings, env, _command(executable, FROM_ENVIRONMENT, port), nics)
        except JobFailed as failed:
            process = getattr(failed, "process", None)
            raise _with_exception(failed, server, key, elastic_key(process), f"process {process}")
        return _results(server, key, [elastic_key(process) for process in last])


@contextmanager
def _serving(call: Call, settings: BaseSettings, is_local: bool) -> Iterator[Tuple[KVStoreServer, bytes, int]]:
    """A server with the function, the key that signs its values, and its port."""
    key = settings.key or secret.make_secret_key()
    server = KVStoreServer(settings.verbose, "127.0.0.1" if is_local else "0.0.0.0")
    port = server.start()
    try:
        server.store.put(_FUNC_SCOPE, _FUNC_KEY, secret.sign(key, cloudpickle.dumps(call)))
        yield server, key, port
    finally:
        server.stop()


def _command(executable: Optional[str], server_ip: str, port: int) -> List[str]:
    return [executable or sys.executable, "-m", "horovod.runner.run_task", server_ip, str(port)]


def _with_exception(failed: JobFailed, server: KVStoreServer, key: bytes, result_key: str, who: str) -> Exception:
    """The failure, with what the function raised if it did."""
    signed = server.store.get(_RESULT_SCOPE, result_key)
    result = Result() if signed is None else _load(key, signed)
    if result.problem is None:
        return failed
    described = RuntimeError(f"{failed}\nThe function raised in {who}:\n{result.problem}")
    described.__cause__ = result.exception
    return described


def elastic_key(process: object) -> str:
    """Key of the result of a process of an elastic job, whose rank may change."""
    return f"process.{process}"


def fetch_call(addr: str, port: int, key: bytes) -> Call:
    """Called in a rank: fetches the function and its arguments."""
    call: Call = cloudpickle.loads(secret.unsign(key, read_data_from_kvstore(addr, port, _FUNC_SCOPE, _FUNC_KEY)))
    return call


def send_result(addr: str, port: int, key: bytes, result_key: str, result: Result) -> None:
    """Called in a rank: sends the result. ValueError if the value cannot be pickled."""
    try:
        message = cloudpickle.dumps(tuple(result))
    except Exception as problem:
        raise ValueError(f"The result of type {type(result.value).__name__} cannot be pickled: {problem}") from problem
    put_data_into_kvstore(addr, port, _RESULT_SCOPE, result_key, secret.sign(key, message))


def _results(server: KVStoreServer, key: bytes, result_keys: Sequence[str]) -> List[Any]:
    values = []
    for rank, result_key in enumerate(result_keys):
        signed = server.store.get(_RESULT_SCOPE, result_key)
        if signed is None:
            raise RuntimeError(f"Rank {rank} ended without a result: did the function end the process itself?")
        values.append(_load(key, signed).value)
    return values


def _load(key: bytes, signed: bytes) -> Result:
    return Result(*cloudpickle.loads(secret.unsign(key, signed)))
