"""Parts of elastic jobs without processes: options, discovery scripts, the launcher's answers."""

import http.client
import threading

import pytest

from horovod.runner import launch
from horovod.runner.elastic.discovery import DiscoveryFailed, FixedHosts, HostDiscoveryScript
from horovod.runner.elastic.rendezvous import ElasticRendezvousServer, Places, place_text

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False


def test_a_discovery_script_prints_hosts_and_slots():
    script = HostDiscoveryScript(r"printf 'b:2\n\n a \n127.0.0.1:1\nb:3\n'", default_slots=4)
    assert list(script.find_available_hosts_and_slots().items()) == [("b", 3), ("a", 4), ("127.0.0.1", 1)]
    assert HostDiscoveryScript("true").find_available_hosts_and_slots() == {}


@pytest.mark.parametrize(
    "script, message",
    [
        ("echo a", "Line 1 of the output of echo a has no slots: print `a:SLOTS`, or give --slots-per-host"),
        ("echo a:2; echo a b:1", "Line 2 of the output of echo a:2; echo a b:1 is 'a b:1': print HOST or HOST:SLOTS"),
        ("echo broken >&2; exit 3", "ended with status 3: broken"),
        ("exit 4", "ended with status 4"),
    ],
)
def test_problems_of_a_discovery_script(script, message):
    with pytest.raises(DiscoveryFailed) as problem:
        HostDiscoveryScript(script).find_available_hosts_and_slots()
    assert message in str(problem.value)


def test_fixed_hosts_can_be_replaced():
    fixed = FixedHosts({"a": 1})
    fixed.set({"b": 2})
    assert fixed.find_available_hosts_and_slots() == {"b": 2}


@pytest.fixture
def server():
    asked = []
    places = Places(lambda process, after: asked.append((process, after)))
    server = ElasticRendezvousServer(places)
    server.port, server.places, server.asked = server.start(), places, asked
    yield server
    server.stop()


def _ask(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    answer = response.status, response.read().decode()
    connection.close()
    return answer


def test_places(server):
    assert _ask(server, "/corro_elastic/place.3.0") == (404, "")
    assert server.asked == [(3, 0)]
    server.places.begin(1, {3: place_text(1, (0, 2, 0, 1, 0, 2)), 4: place_text(1, (1, 2, 0, 1, 1, 2), "10.0.0.1:99")})
    assert _ask(server, "/corro_elastic/place.3.0") == (200, "1 0 2 0 1 0 2")
    assert _ask(server, "/corro_elastic/place.4.0?wait=5") == (200, "1 1 2 0 1 1 2 10.0.0.1:99")
    assert server.asked == [(3, 0)], "the driver hears only of those for whom there is no answer"
    assert _ask(server, "/corro_elastic/place.3.1") == (404, ""), "that generation is over for this process"
    assert server.asked == [(3, 0), (3, 1)]
    server.places.dismiss(4)
    server.places.finish("enough")
    assert _ask(server, "/corro_elastic/place.4.1") == (200, "dismissed")
    assert _ask(server, "/corro_elastic/place.3.1") == (410, "enough")
    assert _ask(server, "/corro_elastic/update.1") == (410, "enough")


def test_waiting_processes_are_answered_at_once(server):
    answers = []
    paths = ["/corro_elastic/place.1.0?wait=30", "/corro_elastic/update.1?wait=30"]
    waiting = [threading.Thread(target=lambda path=path: answers.append(_ask(server, path))) for path in paths]
    waiting[0].start()
    server.places.begin(1, {1: "text"})
    waiting[0].join(10)
    waiting[1].start()
    server.places.notify(1, 2)
    waiting[1].join(10)
    assert answers == [(200, "text"), (200, "2")]
    assert _ask(server, "/corro_elastic/update.2") == (404, ""), "another generation"


def test_a_failure_is_seen_in_its_generation_only(server):
    server.begin(1)
    server.report_failure(1, 2, "rank 2 on host n1 ended with exit code 1")
    assert _ask(server, "/corro_1/failed") == (200, "2 rank 2 on host n1 ended with exit code 1")
    server.begin(2)
    assert _ask(server, "/corro_1/failed") == _ask(server, "/corro_2/failed") == (404, "")


def test_malformed_requests(server):
    for path in ["/corro_elastic/place.1", "/corro_elastic/place.x.0", "/corro_elastic/", "/corro_elastic/other"]:
        assert _ask(server, path)[0] == 400


@pytest.mark.parametrize(
    "options, message",
    [
        ("--min-np 0 -H localhost:2", "--min-np 0: give a number of at least 1."),
        ("--min-np 3 --max-np 2 -H localhost:3", "--max-np 2 is less than --min-np 3"),
        ("--min-np 3 -H localhost:2", "Requested more processes (3) than there are available slots (2)"),
        ("--host-discovery-script true", "The smallest number of processes is missing: give --min-np, or -np."),
        ("--min-np 1 --blacklist-cooldown-range 5 2", "--blacklist-cooldown-range 5 2: give the shortest and the longest"),
        ("--min-np 1 --blacklist-cooldown-range 0 2", "--blacklist-cooldown-range 0 2"),
        ("--min-np 1 --reset-limit -1", "--reset-limit -1: give a number of at least 0."),
        ("--min-np 1 --slots-per-host 0 --host-discovery-script true", "--slots-per-host 0"),
    ],
)
def test_option_errors(options, message):
    with pytest.raises(ValueError) as problem:
        launch._run(launch.parse_args([*options.split(), "true"]))
    assert message in str(problem.value)
