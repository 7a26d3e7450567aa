# Runs no-op jobs on a private HyperQueue: a server and four workers of one processor each.
# Arguments: number of jobs, rounds, directory, shell line. Prints one line per round: jobs per second with one job per
# submit, and with one job of as many tasks.
import os
import sys
import time

from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig

count, rounds, directory, line = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]


def add_task(job, number, folder):
    job.program(["bash", "-c", line], stdout=f"{folder}/{number}.out", stderr=f"{folder}/{number}.err")
    return job


def make_folder(name):
    path = os.path.join(directory, name)
    os.mkdir(path)
    return path


def check_logs(folder):
    complete = sum(1 for number in range(count) if open(f"{folder}/{number}.out").read() == "done\n")
    assert complete == count, f"{complete} of {count} logs are complete"


with LocalCluster(server_dir=os.path.join(directory, "server")) as cluster:
    for _ in range(4):
        cluster.start_worker(WorkerConfig(cores=1))
    client = cluster.client()

    def wait(jobs):
        # Without the progress bar, which would cost the peer time.
        failed = client.connection.wait_for_jobs([job.id for job in jobs], lambda *_: None)
        assert not failed, f"{len(failed)} jobs failed"

    for round in range(rounds):
        folder = make_folder(f"single{round}")
        began = time.perf_counter()
        wait([client.submit(add_task(Job(), number, folder)) for number in range(count)])
        single = count / (time.perf_counter() - began)
        check_logs(folder)
        folder = make_folder(f"array{round}")
        began = time.perf_counter()
        job = Job()
        for number in range(count):
            add_task(job, number, folder)
        wait([client.submit(job)])
        array = count / (time.perf_counter() - began)
        check_logs(folder)
        print(f"round {single} {array}", flush=True)
