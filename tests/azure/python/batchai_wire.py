"""Wire behaviour that the clients of 2018 rely on: headers, api-versions, case-insensitive paths, absent bodies, and polling
by either of the two URLs."""

import uuid

from azure.mgmt.batchai import models as m
from msrestazure.polling.arm_polling import ARMPolling

import arm
import batchai_models as examples
from batchai_site import GROUP, WORKSPACE, BatchAiTestCase

JSON = {"Content-Type": "application/json; charset=utf-8"}


class LocationOnly(ARMPolling):
    """Polls the `Location` URL, as clients do without `Azure-AsyncOperation`."""

    def initialize(self, client, initial_response, deserialization_callback):
        response = getattr(initial_response, "response", initial_response)
        http = getattr(response, "internal_response", response)
        self.dropped = http.headers.pop("Azure-AsyncOperation")
        super().initialize(client, initial_response, deserialization_callback)


class Wire(BatchAiTestCase):
    def cluster(self):
        none = m.ScaleSettings(manual=m.ManualScaleSettings(target_node_count=0))
        return m.ClusterCreateParameters(vm_size="STANDARD_NC6", user_account_settings=examples.user(), scale_settings=none)

    def test_polling_by_location(self):
        polling = LocationOnly(30)
        client = self.client.clusters
        got = client.create(GROUP, WORKSPACE, "by-location", self.cluster(), polling=polling).result()
        self.assertIn("/operationresults/", polling.dropped)
        self.assertEqual(got.name, "by-location")
        self.assertIsNone(client.delete(GROUP, WORKSPACE, "by-location", polling=LocationOnly(30)).result())
        self.assert_refused(404, "ClusterNotFound", client.get, GROUP, WORKSPACE, "by-location")

    def test_without_polling_only_the_first_response_is_read(self):
        client = self.client.clusters
        first = client.create(GROUP, WORKSPACE, "unpolled", self.cluster(), raw=True, polling=False).result()
        self.assertEqual((first.response.status_code, first.response.content), (202, b""))
        headers = first.response.headers
        for name in ("Azure-AsyncOperation", "Location"):
            self.assertTrue(headers[name].startswith(arm.URL + "/subscriptions/"), headers[name])
        self.assertTrue(headers["Retry-After"].isdigit())
        operation = self.plain.send("GET", headers["Azure-AsyncOperation"], version=None).json()
        self.assertEqual(operation["status"], "Succeeded")
        self.assertEqual(operation["properties"]["resourceId"], "$".join([arm.SUBSCRIPTION, GROUP, WORKSPACE, "unpolled"]))
        by_location = self.plain.send("GET", headers["Location"], version=None)
        self.assertEqual((by_location.status_code, by_location.content), (200, b""))
        gone = self.plain.send("GET", headers["Location"].replace("operationstatuses/", "operationstatuses/x"), version=None)
        self.assertEqual((gone.status_code, gone.json()["error"]["code"]), (404, "OperationNotFound"))
        client.delete(GROUP, WORKSPACE, "unpolled").wait()

    def test_the_client_request_id_is_returned_on_request(self):
        path = self.id_of()
        mine = str(uuid.uuid1())
        asked = {"x-ms-client-request-id": mine, "x-ms-return-client-request-id": "true"}
        for where, status in ((path, 200), (path + "/clusters/absent", 404)):
            answer = self.plain.send("GET", where, headers=asked)
            self.assertEqual((answer.status_code, answer.headers.get("x-ms-client-request-id")), (status, mine))
            self.assertTrue(answer.headers["x-ms-request-id"] and answer.headers["x-ms-correlation-request-id"])
        self.assertNotIn("x-ms-client-request-id", self.plain.send("GET", path, headers={"x-ms-client-request-id": mine}).headers)
        first, second = (self.plain.send("GET", path).headers["x-ms-request-id"] for _ in range(2))
        self.assertNotEqual(first, second)

    def test_versions(self):
        for version, code in ((None, "MissingApiVersionParameter"), ("", "MissingApiVersionParameter"),
                              ("2017-09-01-preview", "NoRegisteredProviderFound"), ("x", "NoRegisteredProviderFound")):
            answer = self.plain.send("GET", self.id_of(), version=version)
            self.assertEqual((answer.status_code, answer.json()["error"]["code"]), (400, code), version)
        self.assertEqual(self.plain.send("GET", self.id_of(), version=None, query={"API-Version": "2018-05-01"}).status_code, 200)

    def test_paths_in_any_case_and_with_a_slash_at_the_end(self):
        path = self.id_of("experiments", "exp")
        for other in (path.lower(), path.upper(), path + "/", path.replace("resourceGroups", "resourcegroups")):
            answer = self.plain.send("GET", other)
            self.assertEqual((answer.status_code, answer.json().get("name")), (200, "exp"), other)
            self.assertEqual(answer.json()["id"], path)
        servers = self.plain.send("GET", self.id_of("fileservers"))
        self.assertEqual(servers.status_code, 200)

    def test_absent_bodies(self):
        path = self.id_of("experiments", "bodyless")
        self.assertEqual(self.plain.send("PUT", path, headers=JSON, data=b"").status_code, 200)
        self.assertEqual(self.plain.send("GET", path, headers=JSON).status_code, 200)
        empty = self.plain.send("PUT", self.id_of("clusters", "bodyless"), headers=JSON, data=b"")
        self.assertEqual((empty.status_code, empty.json()["error"]["code"]), (400, "InvalidRequestBody"))
        broken = self.plain.send("PUT", self.id_of("clusters", "bodyless"), headers=JSON, data=b'{"properties":')
        self.assertEqual((broken.status_code, broken.json()["error"]["code"]), (400, "InvalidRequestBody"))
        # Unknown fields are ignored, and a null field counts as absent.
        nulls = {"location": "eastus", "tags": None, "unknown": 1}
        self.assertEqual(self.plain.send("PUT", self.id_of(), json=nulls).status_code, 200)
        deleted = self.plain.send("DELETE", path, headers=JSON, data=b"")
        self.assertIn(deleted.status_code, (200, 202, 204))
        self.assertEqual(self.plain.send("DELETE", self.id_of("clusters", "bodyless")).status_code, 204)

    def test_unknown_methods_and_paths(self):
        for method, path, status in (
            ("PATCH", self.id_of("experiments", "exp"), 405),
            ("PUT", self.id_of("experiments", "exp", "jobs"), 405),
            ("GET", self.id_of("machines", "m"), 404),
            ("POST", self.id_of("clusters", "c", "explode"), 404),
        ):
            answer = self.plain.send(method, path, headers=JSON)
            error = answer.json()["error"]
            self.assertEqual((answer.status_code, bool(error["code"] and error["message"])), (status, True), path)

    def test_missing_and_wrong_tokens(self):
        import requests

        url = arm.URL + self.id_of()
        for header, code in ((None, "AuthenticationFailed"), ("Bearer x.y.z", None), ("Basic YTpi", None)):
            headers = {"Authorization": header} if header else {}
            answer = requests.get(url, params={"api-version": "2018-05-01"}, headers=headers, timeout=arm.DEADLINE)
            self.assertEqual(answer.status_code, 401)
            self.assertTrue(answer.headers["WWW-Authenticate"].startswith("Bearer"))
            if code:
                self.assertEqual(answer.json()["error"]["code"], code)
