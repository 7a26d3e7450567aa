"""A process of an elastic job that speaks the protocol of the rendezvous server and computes nothing.

It asks for its place, meets the other members of its generation at the generation's rendezvous server, writes a line into the
share's directory `generations`, and asks again when it is told of a change. It ends with 0 once the share has the file `finish`,
and as soon as it is dismissed.
"""

import http.client
import os
import sys
import time

SHARE = sys.argv[1]
PROCESS = int(os.environ["CORRO_ELASTIC_PROCESS"])
OWN = f"{os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR']}:{os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT']}"
assert os.environ["HOROVOD_ELASTIC"] == "1"


def request(server, method, path, body=None):
    """Status and text of an answer; status 0 if the server cannot be reached."""
    connection = http.client.HTTPConnection(server, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        time.sleep(0.05)
        return 0, ""
    finally:
        connection.close()


def next_place(after):
    while True:
        status, text = request(OWN, "GET", f"/corro_elastic/place.{PROCESS}.{after}?wait=10")
        if status == 200:
            if text == "dismissed":
                print(f"process {PROCESS} is dismissed", flush=True)
                sys.exit(0)
            return text.split()


def is_changed(generation, wait):
    return request(OWN, "GET", f"/corro_elastic/update.{generation}?wait={wait}")[0] == 200


def meet(server, generation, rank, size):
    """Whether all members have come; not if the generation is given up meanwhile."""
    scope = f"/corro_{generation}"
    request(server, "PUT", f"{scope}/{rank}", str(PROCESS))
    for other in range(size):
        while request(server, "GET", f"{scope}/{other}?wait=0.5")[0] != 200:
            if is_changed(generation, 0) or request(server, "GET", f"{scope}/failed")[0] == 200:
                return False
    return True


generation = 0
while True:
    words = next_place(generation)
    assert int(words[0]) > generation, words
    generation, rank, size, server = int(words[0]), int(words[1]), int(words[2]), words[7]
    if meet(server, generation, rank, size):
        os.makedirs(f"{SHARE}/generations/{generation}", exist_ok=True)
        with open(f"{SHARE}/generations/{generation}/{rank}.new", "w") as file:
            file.write(f"{size} {PROCESS} {os.environ['HOROVOD_HOSTNAME']} {os.getpid()}")
        os.rename(f"{SHARE}/generations/{generation}/{rank}.new", f"{SHARE}/generations/{generation}/{rank}")
        while not is_changed(generation, 0.5):
            if os.path.exists(f"{SHARE}/finish"):
                print(f"process {PROCESS} is done", flush=True)
                sys.exit(0)
