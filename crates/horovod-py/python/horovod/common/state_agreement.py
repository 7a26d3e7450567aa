"""Agreement of all ranks about who sends its elastic state after a (re)start of the engine. One decision, made by every
rank from the same reports; a rank never decides from what it alone knows. Pure."""

from typing import NamedTuple, Optional, Sequence


class Report(NamedTuple):
    """What one rank contributes to the decision. Integers only, so that one small allgather carries all of them."""

    lineage: int
    """Number of synchronizations that led to this rank's state; 0: it is new and has none of the job's."""
    commits: int
    """Number of commits in that lineage."""
    any_sender: int
    """1 if the state can be sent by any rank, 0 if only by rank 0 (a user's own `sync`)."""
    skips: int
    """1 if this rank left its training function knowing that all states are equal."""


def choose_sender(reports: Sequence[Report]) -> Optional[int]:
    """The rank that sends its state to all others, or None if all have the same.

    The one that is ahead sends: the state of more synchronizations, then of more commits; the lowest rank among equals.
    """
    positions = [(report.lineage, report.commits) for report in reports]
    if all(report.lineage == 0 for report in reports):
        return 0  # The beginning of the job: as everywhere in Horovod, rank 0 has what a user loaded.
    ahead = max(positions)
    all_equal = all(position == ahead for position in positions)
    if not all(report.any_sender for report in reports):
        # Rank 0 has the state: launchers keep survivors in front of new ranks. A user's own `sync` may do more than
        # send, so it is called whenever upstream would.
        return None if all_equal and all(report.skips for report in reports) else 0
    return None if all_equal else positions.index(ahead)
