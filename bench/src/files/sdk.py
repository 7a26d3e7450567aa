"""Requests to the file service by Microsoft's own SDK, and the same ones by hand, with one `requests` session each, to Corro and to nginx.

Started by the benchmark `files` with the name of a part and two numbers. The engines take turns. Prints `OPERATION/ENGINE SECONDS` for each
operation.
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
FIRST_REQUEST_BYTES, CHUNK_BYTES = 32 * MIB, 4 * MIB

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


def expect_status(response, *statuses):
    if response.status_code not in statuses:
        sys.exit(f"{response.request.method} {response.request.path_url} failed with status {response.status_code}: {response.text[:500]}")
    return response


def ranges(size, first=CHUNK_BYTES):
    start = 0
    while start < size:
        end = min(start + (first if start == 0 else CHUNK_BYTES), size)
        yield start, end
        start = end


def upload_by_sdk(name, content):
    SHARE_CLIENT.get_file_client(name).upload_file(content, max_concurrency=1)


def upload_by_hand(name, content):
    headers = {"x-ms-type": "file", "x-ms-content-length": str(len(content)), "x-ms-file-attributes": "none",
            "x-ms-file-permission": "Inherit", "x-ms-file-creation-time": "now", "x-ms-file-last-write-time": "now"}
    expect_status(signed("PUT", name, headers=headers), 201)
    for start, end in ranges(len(content)):
        headers = {"x-ms-write": "update", "x-ms-range": f"bytes={start}-{end - 1}"}
        expect_status(signed("PUT", name, {"comp": "range"}, headers, content[start:end]), 201)


def upload_to_nginx(name, content):
    """nginx takes no ranges, so each becomes a file."""
    for number, (start, end) in enumerate(ranges(len(content))):
        expect_status(SESSIONS["nginx"].put(f"{NGINX}/uploads/{name}-{number}", data=content[start:end]), 201, 204)


def upload_whole_to_nginx(name, content):
    expect_status(SESSIONS["nginx"].put(f"{NGINX}/uploads/{name}-0", data=content), 201, 204)


def download_by_sdk(name, size):
    return [SHARE_CLIENT.get_file_client(name).download_file(max_concurrency=1).readall()]


def download_by_hand(name, size):
    range_headers = ({"x-ms-range": f"bytes={start}-{end - 1}"} for start, end in ranges(size, FIRST_REQUEST_BYTES))
    return [expect_status(signed("GET", name, headers=headers), 206).content for headers in range_headers]


def download_from_nginx(name, size):
    range_headers = ({"Range": f"bytes={start}-{end - 1}"} for start, end in ranges(size, FIRST_REQUEST_BYTES))
    return [expect_status(SESSIONS["nginx"].get(f"{NGINX}/files/{name}", headers=headers), 206).content for headers in range_headers]


def download_whole_from_nginx(name, size):
    return [expect_status(SESSIONS["nginx"].get(f"{NGINX}/files/{name}"), 200).content]


def list_by_sdk(directory):
    return len(list(SHARE_CLIENT.get_directory_client(directory).list_directories_and_files()))


def list_by_hand(directory):
    count, marker = 0, ""
    while True:
        query = {"restype": "directory", "comp": "list"}
        if marker:
            query["marker"] = marker
        page = expect_status(signed("GET", directory, query), 200).text
        count += page.count("<File>")
        marker = page.partition("<NextMarker>")[2].partition("</NextMarker>")[0]
        if not marker:
            return count


def list_by_nginx(directory):
    return len(expect_status(SESSIONS["nginx"].get(f"{NGINX}/list/{directory}/"), 200).json())


def measure_time(operation, engine, action, *arguments):
    began = time.perf_counter()
    result = action(*arguments)
    print(f"{operation}/{engine} {time.perf_counter() - began}", flush=True)
    return result


def prepare(count, size):
    """Creates small files with the SDK."""
    directory = SHARE_CLIENT.create_directory("small")
    for number in range(count):
        directory.get_file_client(f"f{number}").upload_file(os.urandom(size))


def transfers(rounds, mebibytes):
    content = os.urandom(mebibytes * MIB)
    uploads = {"sdk": upload_by_sdk, "corro": upload_by_hand, "nginx": upload_to_nginx, "nginx-whole": upload_whole_to_nginx}
    downloads = {"sdk": download_by_sdk, "corro": download_by_hand, "nginx": download_from_nginx,
                 "nginx-whole": download_whole_from_nginx}
    for number in range(rounds):
        for engine, upload in uploads.items():
            measure_time("upload", engine, upload, f"up-{number}-{engine}", content)
        for engine, download in downloads.items():
            parts = measure_time("download", engine, download, f"up-{number}-sdk", len(content))
            if b"".join(parts) != content:
                sys.exit(f"the download by {engine} differs from the upload")
        for engine in uploads:
            if engine in ("sdk", "corro"):
                SHARE_CLIENT.get_file_client(f"up-{number}-{engine}").delete_file()
            else:
                for part, _ in enumerate(ranges(len(content))):
                    expect_status(SESSIONS["nginx"].delete(f"{NGINX}/uploads/up-{number}-{engine}-{part}"), 204, 404)


def listing(rounds, entries):
    for _ in range(rounds):
        for engine, action in {"sdk": list_by_sdk, "corro": list_by_hand, "nginx": list_by_nginx}.items():
            listed = measure_time("listing", engine, action, "many")
            if listed != entries:
                sys.exit(f"{engine} listed {listed} of {entries} entries")


if __name__ == "__main__":
    {"prepare": prepare, "transfers": transfers, "listing": listing}[sys.argv[1]](*map(int, sys.argv[2:]))
