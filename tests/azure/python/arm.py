"""Shared by the tests of the management clients of 2018: server address, credentials, waiting, plain requests.

`RealSite::python` sets SERVER, CLIENT_ID, CLIENT_SECRET, TENANT and SUBSCRIPTION.
"""

import collections
import collections.abc
import os
import time

# The login library of 2018 imports these from `collections`, where Python had them in 2018.
for _name in ("Iterable", "Mapping", "MutableMapping"):
    setattr(collections, _name, getattr(collections.abc, _name))

import requests
from msrestazure.azure_active_directory import ServicePrincipalCredentials
from msrestazure.azure_cloud import Cloud, CloudEndpoints

URL = os.environ["SERVER"]
SUBSCRIPTION = os.environ["SUBSCRIPTION"]
TENANT = os.environ["TENANT"]
# Long enough for a loaded machine; reaching it is a failure, not a measurement.
DEADLINE = 60


def credentials():
    """Credentials of the service principal, as clients pass them."""
    endpoints = CloudEndpoints(
        resource_manager=URL, management=URL, active_directory=URL + "/adfs", active_directory_resource_id=URL
    )
    return ServicePrincipalCredentials(
        os.environ["CLIENT_ID"],
        os.environ["CLIENT_SECRET"],
        tenant=TENANT,
        cloud_environment=Cloud("corro", endpoints=endpoints),
    )


def wait_for(what, holds):
    """Calls `holds` until it returns a true value, and returns that."""
    deadline = time.monotonic() + DEADLINE
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("waited too long for " + what)
        time.sleep(0.05)


class Plain:
    """Plain HTTP session with the server, for requests that the client libraries never send."""

    def __init__(self):
        self.session = requests.Session()
        token = credentials().token["access_token"]
        self.session.headers["Authorization"] = "Bearer " + token

    def send(self, method, path, version="2018-05-01", **more):
        if not path.startswith("https://"):
            path = URL + path
        query = dict(more.pop("query", {}))
        if version is not None:
            query["api-version"] = version
        return self.session.request(method, path, params=query, timeout=DEADLINE, **more)
