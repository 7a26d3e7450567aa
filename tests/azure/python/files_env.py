"""Settings of the file service under test, from environment variables that the Rust test sets, and shared helpers: unique
names, odd names, and the shares on the server's disk."""

import os
import random
import socket
import string

# `NAME:PORT`; accounts are at `ACCOUNT.file.SUFFIX`.
SUFFIX = os.environ["SUFFIX"]
PORT = int(SUFFIX.rsplit(":", 1)[1])
CA = os.environ["CA"]
ACCOUNT = os.environ["ACCOUNT"]
KEY = os.environ["KEY"]
# Position of the account in URLs: `host` or `path`. `plain` is by path, and without TLS.
STYLE = os.environ["STYLE"]
# The account's shares on the server's disk.
DISK = os.environ["DISK"]

ENDPOINT = {
    "host": f"https://{ACCOUNT}.file.{SUFFIX}",
    "path": f"https://127.0.0.1:{PORT}/{ACCOUNT}",
    "plain": f"http://127.0.0.1:{PORT}/{ACCOUNT}",
}[STYLE]
# The blob service of the same account.
BLOBS = ENDPOINT.replace(".file.", ".blob.", 1) if STYLE == "host" else ENDPOINT + ".blob"


def unmodified():
    """Match condition: the blob still has the given ETag."""
    from azure.core import MatchConditions

    return MatchConditions.IfNotModified


_getaddrinfo = socket.getaddrinfo


def _resolve_accounts(host, *rest, **named):
    """Resolves the host names of accounts to this machine, without changes to its configuration."""
    ours = isinstance(host, str) and host.endswith("." + SUFFIX.rsplit(":", 1)[0])
    return _getaddrinfo("127.0.0.1" if ours else host, *rest, **named)


socket.getaddrinfo = _resolve_accounts


def new_name(prefix):
    """A unique name with this prefix."""
    return prefix + "".join(random.choices(string.ascii_lowercase, k=10))


def on_disk(share, *path):
    return os.path.join(DISK, share, *path)


# Links by name: their target, and the content that a read returns.
LINKS = {
    "latest": ("../checkpoints", b"../checkpoints"),
    "model.h5": ("../checkpoints/best.h5", b"weights"),
    "loop": (".", b"."),
    "dangling": ("nowhere", b"nowhere"),
    "outside": ("/etc", b"/etc"),
}


def plant_links(share):
    """Creates `checkpoints/best.h5` and the links of LINKS in `old`, as a job might."""
    for directory in ("checkpoints", "old"):
        os.mkdir(on_disk(share, directory))
    with open(on_disk(share, "checkpoints", "best.h5"), "wb") as best:
        best.write(b"weights")
    for name, (text, _) in LINKS.items():
        os.symlink(text, on_disk(share, "old", name))


def best(share):
    with open(on_disk(share, "checkpoints", "best.h5"), "rb") as file:
        return file.read()


# Names that clients and servers get wrong. Each is one component.
ODD_NAMES = [
    "two words.txt",
    " blank first",
    "blank last ",
    "caf\u00e9 composed",
    "cafe\u0301 decomposed",
    "\u65e5\u672c\u8a9e.txt",
    "\U0001f600.bin",
    "100%",
    "%41 is not A",
    "a%2Fb",
    "%",
    "a+b c",
    "a#b",
    "a;b=c&d,e",
    "what? this",
    'a:b|c*<d>"e',
    "it's",
    "(brackets) [and] {braces}",
    "~tilde!$@^`",
    "ends.",
    "..two first",
    "...",
    ".hidden",
    "x" * 255,
]
