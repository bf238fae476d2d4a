"""Which generation owns which seq. Pure.

A source's history in generation g is made of segments, oldest first: of each ancestor the
records from its first seq up to where the next younger one branched off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .values import Generation


@dataclass(frozen=True, slots=True)
class Segment:
    """Seqs `first` <= seq < `end` of one generation; `end` None: to its newest."""

    generation: int
    first: int
    end: int | None

    def holds(self, seq: int) -> bool:
        return seq >= self.first and (self.end is None or seq < self.end)


def lineage(generations: Mapping[int, Generation], generation: int) -> tuple[Segment, ...]:
    """The history of a generation. `generation` is a key of `generations`."""
    segments: list[Segment] = []
    end: int | None = None
    at: int | None = generation
    while at is not None:
        each = generations[at]
        if end is None or each.first_seq < end:
            segments.append(Segment(at, each.first_seq, end))
            end = each.first_seq
        at = each.parent
    return tuple(reversed(segments))


def snapshot_index(segments: Sequence[Segment], generation: int, seq: int) -> int | None:
    """Index of the segment whose history a snapshot is of. One that was given from outside at the
    very start of a generation lies just before its first record.
    """
    for index, segment in enumerate(segments):
        before = segment.generation == generation and seq == segment.first - 1
        if before or (segment.generation == generation and segment.holds(seq)):
            return index
    return None


def futures(generations: Mapping[int, Generation], generation: int) -> tuple[int, ...]:
    """Older generations that share all of the history before the point where `generation`
    branched off, newest first: what they recorded beyond it is the future that was. One image can
    be restored many times, so these are not only its ancestors.
    """
    branch = generations[generation].first_seq
    shared = _before(lineage(generations, generation), branch)
    return tuple(
        older
        for older in sorted(generations, reverse=True)
        if older < generation and _before(lineage(generations, older), branch) == shared
    )


def _before(segments: Sequence[Segment], seq: int) -> tuple[Segment, ...]:
    """What of a history lies before `seq`."""
    return tuple(
        Segment(each.generation, each.first, seq if each.end is None else min(each.end, seq))
        for each in segments
        if each.first < seq
    )
