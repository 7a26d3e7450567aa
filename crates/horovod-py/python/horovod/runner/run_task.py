"""A rank of `horovod.run`: `python -m horovod.runner.run_task ADDRESS PORT`. Fetches the function, calls it and sends
the result. An exception is printed as usual, and also sent to the caller."""

import os
import pickle
import sys
import traceback
from typing import Optional

import cloudpickle

from horovod.runner.common.util import secret
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.run_func import FROM_ENVIRONMENT, Result, elastic_key, fetch_call, send_result


def main(addr: str, port: int) -> int:
    key = bytes.fromhex(os.environ[secret.JOB_SECRET])
    if addr == FROM_ENVIRONMENT:
        addr = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    process = os.environ.get("CORRO_ELASTIC_PROCESS")
    result_key = str(get_env_rank_and_size()[0]) if process is None else elastic_key(process)
    try:
        func, args, kwargs = fetch_call(addr, port, key)
        send_result(addr, port, key, result_key, Result(value=func(*args, **kwargs)))
    except Exception as exception:
        problem = traceback.format_exc()
        print(problem, file=sys.stderr, flush=True)
        send_result(addr, port, key, result_key, Result(problem=problem, exception=_that_can_travel(exception)))
        return 1
    return 0


def _that_can_travel(exception: Exception) -> Optional[Exception]:
    try:
        pickle.loads(cloudpickle.dumps(exception))
        return exception
    except Exception:
        return None  # The traceback is sent anyway.


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
