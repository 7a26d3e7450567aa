"""Requests to the file service by Microsoft's own SDK, and the same ones by hand, with one `requests` session each, to Corro and to nginx.

Started by the benchmark `files` with the name of a part and how often. Everybody takes turns. Prints `WORK/PLAYER SECONDS` a line.
"""

import base64
import hashlib
import hmac
import os
import sys
import time
from email.utils import formatdate

import requests
from azure.storage.fileshare import ShareServiceClient

CORRO = os.environ["BENCH_CORRO"]
NGINX = os.environ["BENCH_NGINX"]
ACCOUNT = os.environ["BENCH_ACCOUNT"]
KEY = os.environ["BENCH_KEY"]
SHARE = os.environ["BENCH_SHARE"]
VERSION = "2023-11-03"
MIB = 1 << 20
# Size of the SDK's first request, and of the following ones; uploads use the latter.
FIRST, PIECE = 32 * MIB, 4 * MIB

SESSIONS = {name: requests.Session() for name in ("corro", "nginx")}
ACCOUNT_CLIENT = ShareServiceClient(f"{CORRO}/{ACCOUNT}", credential={"account_name": ACCOUNT, "account_key": KEY})
SHARE_CLIENT = ACCOUNT_CLIENT.get_share_client(SHARE)


def signed(verb, path, query=None, headers=None, body=b""):
    """One request to Corro with a Shared Key."""
    headers = dict(headers or {}, **{"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION})
    path = f"/{ACCOUNT}/{SHARE}/{path}".rstrip("/")
    length = str(len(body)) if body else ""
    service = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    resource = f"/{ACCOUNT}{path}" + "".join(f"\n{name}:{value}" for name, value in sorted((query or {}).items()))
    text = f"{verb}\n\n\n{length}\n\n\n\n\n\n\n\n\n{service}{resource}"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    return SESSIONS["corro"].request(verb, CORRO + path, params=query, headers=headers, data=body)


def good(answer, *statuses):
    if answer.status_code not in statuses:
        sys.exit(f"{answer.request.method} {answer.request.path_url} was answered with {answer.status_code}: {answer.text[:500]}")
    return answer


def ranges(size, first=PIECE):
    start = 0
    while start < size:
        end = min(start + (first if start == 0 else PIECE), size)
        yield start, end
        start = end


def upload_by_sdk(name, content):
    SHARE_CLIENT.get_file_client(name).upload_file(content, max_concurrency=1)


def upload_by_hand(name, content):
    kind = {"x-ms-type": "file", "x-ms-content-length": str(len(content)), "x-ms-file-attributes": "none",
            "x-ms-file-permission": "Inherit", "x-ms-file-creation-time": "now", "x-ms-file-last-write-time": "now"}
    good(signed("PUT", name, headers=kind), 201)
    for start, end in ranges(len(content)):
        told = {"x-ms-write": "update", "x-ms-range": f"bytes={start}-{end - 1}"}
        good(signed("PUT", name, {"comp": "range"}, told, content[start:end]), 201)


def upload_to_nginx(name, content):
    """It takes no ranges, so each becomes a file."""
    for number, (start, end) in enumerate(ranges(len(content))):
        good(SESSIONS["nginx"].put(f"{NGINX}/uploads/{name}-{number}", data=content[start:end]), 201, 204)


def upload_whole_to_nginx(name, content):
    good(SESSIONS["nginx"].put(f"{NGINX}/uploads/{name}-0", data=content), 201, 204)


def download_by_sdk(name, size):
    return [SHARE_CLIENT.get_file_client(name).download_file(max_concurrency=1).readall()]


def download_by_hand(name, size):
    asked = ({"x-ms-range": f"bytes={start}-{end - 1}"} for start, end in ranges(size, FIRST))
    return [good(signed("GET", name, headers=headers), 206).content for headers in asked]


def download_from_nginx(name, size):
    asked = ({"Range": f"bytes={start}-{end - 1}"} for start, end in ranges(size, FIRST))
    return [good(SESSIONS["nginx"].get(f"{NGINX}/files/{name}", headers=headers), 206).content for headers in asked]


def download_whole_from_nginx(name, size):
    return [good(SESSIONS["nginx"].get(f"{NGINX}/files/{name}"), 200).content]


def list_by_sdk(directory):
    return len(list(SHARE_CLIENT.get_directory_client(directory).list_directories_and_files()))


def list_by_hand(directory):
    count, marker = 0, ""
    while True:
        query = {"restype": "directory", "comp": "list"}
        if marker:
            query["marker"] = marker
        page = good(signed("GET", directory, query), 200).text
        count += page.count("<File>")
        marker = page.partition("<NextMarker>")[2].partition("</NextMarker>")[0]
        if not marker:
            return count


def list_by_nginx(directory):
    return len(good(SESSIONS["nginx"].get(f"{NGINX}/list/{directory}/"), 200).json())


def timed(work, player, action, *arguments):
    began = time.perf_counter()
    result = action(*arguments)
    print(f"{work}/{player} {time.perf_counter() - began}", flush=True)
    return result


def prepare(count, size):
    """Small files as the SDK leaves them."""
    directory = SHARE_CLIENT.create_directory("small")
    for number in range(count):
        directory.get_file_client(f"f{number}").upload_file(os.urandom(size))


def transfers(rounds, mebibytes):
    content = os.urandom(mebibytes * MIB)
    uploads = {"sdk": upload_by_sdk, "corro": upload_by_hand, "nginx": upload_to_nginx, "nginx-whole": upload_whole_to_nginx}
    downloads = {"sdk": download_by_sdk, "corro": download_by_hand, "nginx": download_from_nginx,
                 "nginx-whole": download_whole_from_nginx}
    for number in range(rounds):
        for player, upload in uploads.items():
            timed("upload", player, upload, f"up-{number}-{player}", content)
        for player, download in downloads.items():
            parts = timed("download", player, download, f"up-{number}-sdk", len(content))
            if b"".join(parts) != content:
                sys.exit(f"what {player} downloaded is not what was uploaded")
        for player in uploads:
            if player in ("sdk", "corro"):
                SHARE_CLIENT.get_file_client(f"up-{number}-{player}").delete_file()
            else:
                for part, _ in enumerate(ranges(len(content))):
                    good(SESSIONS["nginx"].delete(f"{NGINX}/uploads/up-{number}-{player}-{part}"), 204, 404)


def listing(rounds, entries):
    for _ in range(rounds):
        for player, action in {"sdk": list_by_sdk, "corro": list_by_hand, "nginx": list_by_nginx}.items():
            found = timed("listing", player, action, "many")
            if found != entries:
                sys.exit(f"{player} has listed {found} of {entries} entries")


if __name__ == "__main__":
    {"prepare": prepare, "transfers": transfers, "listing": listing}[sys.argv[1]](*map(int, sys.argv[2:]))
