"""Who may attach, and what it means when a known source comes back. Pure rules.

In this order, the first that fits decides:

1. No worker of this name: a new worker.
2. Another incarnation. While any source of the first is alive: refused, two workers have one
   name. Otherwise the worker was *restarted*: what was in flight is gone.
3. Another number of ranks than the other sources of this incarnation said: refused.
4. A source that is new to this worker: admitted.
5. The source is alive on another stream and the newcomer is another process or has other
   memory (nonce): refused, it is a clone. (The same process superseding its own stream is a
   reconnect: a process has one stream only.)
6. Another nonce: not the same memory, *restarted*.
7. Another process, another count of signs, a seq behind the record, or a memory that does not
   know a generation that it was told: *restored*.
8. Otherwise a reconnect.

A whole virtual machine cloned while it runs shows the same process identity on both sides;
this cannot tell the two apart. They supersede each other and fall behind each other's seqs,
which opens generation after generation and keeps the gate closed.
"""

import enum
from dataclasses import dataclass

from sidecar.identity import Greeting
from sidecar.registry import Registry, SourceRuntime, WorkerRuntime


class Entry(enum.Enum):
    """How a greeting is let in."""

    NEW_WORKER = "new_worker"
    RESTARTED_WORKER = "restarted_worker"
    NEW_SOURCE = "new_source"
    RESTARTED_SOURCE = "restarted_source"
    RESTORED = "restored"
    RECONNECTED = "reconnected"


class RefusalKind(enum.Enum):
    """Why a greeting is turned away."""

    NAME_TAKEN = "name_taken"
    CLONE = "clone"
    RANKS_DIFFER = "ranks_differ"


@dataclass(frozen=True, slots=True)
class Admission:
    """Let in. `why` says what changed, in words; empty where nothing did."""

    entry: Entry
    why: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Turned away. `text` is the answer's text."""

    kind: RefusalKind
    text: str


def admit(
    registry: Registry, worker: WorkerRuntime | None, greeting: Greeting
) -> Admission | Refusal:
    """Decides about a greeting; changes nothing."""
    if worker is None:
        return Admission(Entry.NEW_WORKER)
    if worker.incarnation != greeting.incarnation:
        return _other_incarnation(registry, worker, greeting)
    if worker.ranks != greeting.ranks:
        return Refusal(
            RefusalKind.RANKS_DIFFER,
            f"hello.ranks is {greeting.ranks}, other sources of worker {worker.name!r} said "
            f"{worker.ranks}",
        )
    source = worker.sources.get(greeting.key)
    if source is None:
        return Admission(Entry.NEW_SOURCE)
    return _known_source(registry, worker, source, greeting)


def _other_incarnation(
    registry: Registry, worker: WorkerRuntime, greeting: Greeting
) -> Admission | Refusal:
    if registry.any_alive(worker):
        return Refusal(
            RefusalKind.NAME_TAKEN,
            f"hello.worker {worker.name!r} is the name of another live worker (incarnation "
            f"{worker.incarnation!r}, yours is {greeting.incarnation!r}); give each worker a "
            "name of its own",
        )
    return Admission(
        Entry.RESTARTED_WORKER,
        f"incarnation {greeting.incarnation!r} instead of {worker.incarnation!r}",
    )


def _known_source(
    registry: Registry, worker: WorkerRuntime, source: SourceRuntime, greeting: Greeting
) -> Admission | Refusal:
    other_process = not source.process.same_process(greeting.process)
    other_nonce = source.nonce != greeting.nonce
    if registry.alive(source) and (other_process or other_nonce):
        return Refusal(
            RefusalKind.CLONE,
            f"{source.key} of worker {worker.name!r} is attached and alive as process "
            f"{source.process.pid} on {source.process.host!r}; process {greeting.process.pid} "
            f"on {greeting.process.host!r} looks like a clone of it; stop one of them",
        )
    if other_nonce:
        return Admission(
            Entry.RESTARTED_SOURCE,
            f"{source.key} has nonce {greeting.nonce:#x} instead of {source.nonce:#x}: it is "
            "not the same memory",
        )
    changed = _signs_of_restore(source, greeting)
    if changed:
        return Admission(Entry.RESTORED, f"{source.key}: " + ", ".join(changed))
    return Admission(Entry.RECONNECTED)


def _signs_of_restore(source: SourceRuntime, greeting: Greeting) -> list[str]:
    changed = []
    if not source.process.same_process(greeting.process):
        changed.append(
            f"process {greeting.process.pid} started at tick {greeting.process.start_ticks} "
            f"instead of {source.process.pid} at {source.process.start_ticks}"
        )
    if source.signs_seen != greeting.signs_seen:
        changed.append(f"{greeting.signs_seen} signs seen instead of {source.signs_seen}")
    if greeting.next_seq <= source.received_seq:
        changed.append(
            f"next seq {greeting.next_seq} is behind the record, which has {source.received_seq}"
        )
    if greeting.generation < source.told_generation:
        changed.append(
            f"it knows of generation {greeting.generation} and had been told of "
            f"{source.told_generation}"
        )
    return changed
