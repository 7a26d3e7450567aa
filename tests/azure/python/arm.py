"""What every test of the old management clients needs: how to reach the server, and who calls.

Started by `RealSite::python`, which says in SERVER, CLIENT_ID, CLIENT_SECRET, TENANT and SUBSCRIPTION where and who.
"""

import collections
import collections.abc
import os
import time

# The login library of 2018 imports these from their place in the Python of 2018.
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
    """A service principal, as the clients log it in."""
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
    """Asks until the answer is true, and gives it back."""
    deadline = time.monotonic() + DEADLINE
    while True:
        answer = holds()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError("waited too long for " + what)
        time.sleep(0.05)


class Plain:
    """The same server without a client library: what the libraries never send can be sent."""

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
