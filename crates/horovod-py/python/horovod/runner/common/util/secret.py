"""The secret of a job, and signatures made with it. A secret is passed only in environments and pipes, never on a
command line, which every user of a host can read."""

import hashlib
import hmac
import secrets

# Upstream's name for the launcher's own secret: never forwarded to workers.
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
# Used by the engine: ranks prove to each other that they know it.
JOB_SECRET = "CORRO_JOB_SECRET"
SECRET_LENGTH = 32
DIGEST_LENGTH = 32


def make_secret_key() -> bytes:
    return secrets.token_bytes(SECRET_LENGTH)


def compute_digest(key: bytes, msg: bytes) -> bytes:
    return hmac.new(key, msg, hashlib.sha256).digest()


def check_digest(key: bytes, msg: bytes, digest: bytes) -> bool:
    return hmac.compare_digest(compute_digest(key, msg), digest)


def sign(key: bytes, msg: bytes) -> bytes:
    """The message, preceded by its signature."""
    return compute_digest(key, msg) + msg


def unsign(key: bytes, signed: bytes) -> bytes:
    """The message; ValueError if the signature is invalid."""
    digest, msg = signed[:DIGEST_LENGTH], signed[DIGEST_LENGTH:]
    if not check_digest(key, msg, digest):
        raise ValueError("invalid signature: the message was not signed with the job's secret")
    return msg
