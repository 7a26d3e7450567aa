"""A process of an elastic training that speaks the launcher's protocol and computes nothing. It records each place that it gets as a line of
the file `places`: its generation, rank, size, number, process id, host and slot. It asks again when a member of its generation has ended or hosts
have changed, and ends when the file `done` exists, or with the exit code in the file `fail.<number>`."""

import os
import sys
import urllib.error
import urllib.request

BASE = "http://{HOROVOD_GLOO_RENDEZVOUS_ADDR}:{HOROVOD_GLOO_RENDEZVOUS_PORT}/".format(**os.environ)
PROCESS = os.environ["CORRO_ELASTIC_PROCESS"]


def get(path):
    try:
        with urllib.request.urlopen(BASE + path) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def record(*words):
    line = " ".join(map(str, words)) + "\n"
    descriptor = os.open("places", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def next_place(after):
    while True:
        status, text = get(f"corro_elastic/place.{PROCESS}.{after}?wait=5")
        if status == 410:
            sys.exit(f"over: {text}")
        if text == "dismissed":
            print("dismissed")
            sys.exit(0)
        if status == 200:
            generation, rank, size = text.split()[:3]
            return generation, rank, size


def compute(generation):
    while True:
        if os.path.exists("done"):
            sys.exit(0)
        if os.path.exists(f"fail.{PROCESS}"):
            with open(f"fail.{PROCESS}") as file:
                sys.exit(int(file.read()))
        if get(f"corro_{generation}/failed?wait=0.05")[0] == 200:
            return
        if get(f"corro_elastic/update.{generation}")[0] == 200:
            return


assert os.environ["HOROVOD_ELASTIC"] == "1"
if os.path.exists("never-joins"):
    sys.exit(3)
generation = 0
while True:
    generation, rank, size = next_place(generation)
    host, slot = os.environ["HOROVOD_HOSTNAME"], os.environ["HOROVOD_LOCAL_RANK"]
    print(f"process {PROCESS} is rank {rank} of {size}")
    record(generation, rank, size, PROCESS, os.getpid(), host, slot)
    compute(generation)
