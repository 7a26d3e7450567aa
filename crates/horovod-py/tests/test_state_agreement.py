"""Who sends its elastic state after a restart of the engine. Pure: needs no ranks."""

import itertools

from horovod.common.state_agreement import Report, choose_sender

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False


def _reports(*positions, any_sender=1, skips=0):
    return [Report(lineage, commits, any_sender, skips) for lineage, commits in positions]


def test_the_first_synchronization_sends_the_state_of_rank_0():
    assert choose_sender(_reports((0, 1))) == 0
    assert choose_sender(_reports((0, 1), (0, 5), (0, 1))) == 0, "commits before the job began do not count"


def test_nobody_sends_if_all_are_equal_and_nobody_is_new():
    assert choose_sender(_reports((1, 7), (1, 7), (1, 7))) is None
    assert choose_sender(_reports((3, 2))) is None, "one survivor needs nobody"


def test_the_one_that_is_ahead_sends():
    assert choose_sender(_reports((1, 7), (1, 8), (1, 8))) == 1, "the lowest of those"
    assert choose_sender(_reports((1, 7), (0, 1))) == 0, "the second one is new"
    assert choose_sender(_reports((1, 7), (0, 99))) == 0, "commits of another lineage do not count"
    assert choose_sender(_reports((0, 1), (2, 3), (2, 2))) == 1
    assert choose_sender(_reports((1, 9), (2, 9))) == 1, "it completed a synchronization that the other did not"


def test_a_sync_of_the_users_own_sends_from_rank_0():
    ahead = _reports((1, 7), (1, 8), any_sender=0)
    assert choose_sender(ahead) == 0
    assert choose_sender(_reports((1, 7), (1, 7), any_sender=0)) == 0, "as upstream, after every failure"
    assert choose_sender(_reports((1, 7), (1, 7), any_sender=0, skips=1)) is None
    one_failed = [Report(1, 7, 0, 1), Report(1, 7, 0, 0)]
    assert choose_sender(one_failed) == 0, "if one needs it, all take part"
    assert choose_sender(_reports((1, 7), (0, 1), any_sender=0, skips=1)) == 0, "a new rank needs it"


def test_a_state_that_is_behind_or_new_never_sends():
    positions = [(0, 1), (0, 3), (1, 2), (1, 3), (2, 1)]
    for n_ranks in (1, 2, 3, 4):
        for given in itertools.product(positions, repeat=n_ranks):
            sender = choose_sender(_reports(*given))
            if sender is None:
                assert len(set(given)) == 1 and given[0][0] > 0
            elif any(lineage for lineage, _ in given):
                assert given[sender] == max(given) and max(given) not in given[:sender]
