"""Follows the generators of seeded sessions and digests their states."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import xxhash

# Reads a generator's state as bytes; None where the session has no generator.
ReadState = Callable[[], bytes]
# What is known of a session's generator: not there yet (False), or how to read it (None: none).
FindGenerator = Callable[[str], tuple[bool, ReadState | None]]
Columns = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]

# A state of 5 KiB takes some 6 microseconds; so many are read per step, in turn, and all of
# them at an attestation.
MOST_PER_STEP = 8


class SamplerWatch:
    """Generators by row. All calls under the step lock.

    Digests are of the state before a step, read at the boundary where an attestation would read
    them: only then are both of one moment. A session that has not run yet has no generator.
    """

    def __init__(self, find: FindGenerator) -> None:
        self._find = find
        self._expected: dict[str, int] = {}
        self._states: dict[int, ReadState] = {}
        self._turn = 0

    def expect(self, started: Sequence[tuple[int, str]]) -> None:
        """Sessions that may get a generator when they first run."""
        for row, name in started:
            self._expected[name] = row

    def forget(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._states.pop(row, None)
        if rows:
            gone = set(rows)
            self._expected = {n: row for n, row in self._expected.items() if row not in gone}

    def next_few(self) -> Columns:
        """(rows, digests) of at most MOST_PER_STEP sessions, the next ones in turn."""
        self._adopt()
        rows = list(self._states)
        if len(rows) > MOST_PER_STEP:
            self._turn %= len(rows)
            rows = (rows[self._turn :] + rows[: self._turn])[:MOST_PER_STEP]
            self._turn += MOST_PER_STEP
        return self._digests({row: self._states[row] for row in rows})

    def all(self) -> Columns:
        """(rows, digests) of all sessions that have a generator."""
        self._adopt()
        return self._digests(self._states)

    def _adopt(self) -> None:
        for name in list(self._expected):
            is_known, state = self._find(name)
            if is_known:
                row = self._expected.pop(name)
                if state is not None:
                    self._states[row] = state

    @staticmethod
    def _digests(states: Mapping[int, ReadState]) -> Columns:
        rows = sorted(states)
        digests = [xxhash.xxh3_64_intdigest(states[row]()) for row in rows]
        return np.array(rows, np.uint32), np.array(digests, np.uint64)
