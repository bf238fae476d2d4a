"""What a rank's record must satisfy before it is stored.

The scheduler's records are checked by folding them; a rank's are only stored, so a bad one
would be found when a verdict needs it. Better to refuse it while the adapter can be told.
"""

from collections.abc import Mapping

from sidecar.core.errors import BadKvRows, OutOfOrderStep, UnknownKvGroup
from sidecar.core.events import KvGroup, KvRows, RankStep


def check_rank_step(event: RankStep, groups: Mapping[int, KvGroup], newest_step: int) -> None:
    """Checks a rank's step against the rank's own declaration.

    `newest_step` is the last one taken in, 0 if none.

    Raises:
        OutOfOrderStep, UnknownKvGroup, BadKvRows: what does not fit.

    """
    if event.step <= newest_step:
        raise OutOfOrderStep("rank step", event.step, newest_step + 1)
    for rows in event.kv:
        group = groups.get(rows.kv_group)
        if group is None:
            raise UnknownKvGroup(rows.kv_group, tuple(groups))
        _check_rows(rows, group)


def _check_rows(rows: KvRows, group: KvGroup) -> None:
    if rows.digests.shape != (len(rows.slots), group.digests):
        raise BadKvRows(
            group.group, "size of digests", rows.digests.size, len(rows.slots) * group.digests
        )
    if len(rows.slots) and int(rows.slots.max()) >= group.slots:
        raise BadKvRows(group.group, "slot", int(rows.slots.max()), group.slots)
