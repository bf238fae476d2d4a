"""What the ledger remembers of a worker that this process has not seen yet.

A sidecar that was restarted goes on from it: sources are known, gone, and judged by the same
rules when they attach again.
"""

from dataclasses import dataclass

from tokenwitness.v1 import types_pb2

from sidecar.core.events import SourceKey, SourceKind
from sidecar.core.verdicts import Verdict
from sidecar.identity import SourcePlace
from sidecar.ledger.interface import Ledger
from sidecar.ledger.values import SourceEntry
from sidecar.recorder.opening import LIFE_SEPARATOR, Opening
from sidecar.registry import SourceRuntime, WorkerRuntime

# How far back the verdict on the newest restore is looked for.
MAX_VERDICTS = 50


@dataclass(frozen=True, slots=True)
class Recalled:
    """A worker as recorded. `distrust` says why its gate must not open; empty: it may."""

    worker: WorkerRuntime
    distrust: str


def recall_worker(ledger: Ledger, name: str) -> Recalled | None:
    """The newest life of a worker; None: the ledger does not know it.

    Reads the ledger and may take a moment; for a worker thread.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    entries = ledger.sources(name)
    if not entries:
        return None
    # A source that lost its memory has a log under the incarnation with its nonce behind it.
    incarnation = _base(entries[-1].incarnation)
    newest: dict[SourceKey, SourceEntry] = {
        entry.key: entry for entry in entries if _base(entry.incarnation) == incarnation
    }
    worker = WorkerRuntime(
        name=name, incarnation=incarnation, ranks=next(iter(newest.values())).description.ranks
    )
    for key, entry in newest.items():
        worker.sources[key] = _source(ledger, entry)
    worker.generation = max(source.generation for source in worker.sources.values())
    if SourceKey(SourceKind.SCHEDULER) in newest:
        worker.live.stale = "not read from the ledger yet"
    return _judged(ledger, worker)


def _source(ledger: Ledger, entry: SourceEntry) -> SourceRuntime:
    generation = max(ledger.generations(entry.source_id), key=lambda each: each.generation)
    opening = Opening.decode(generation.reason)
    described = entry.description
    durable = ledger.durable_seq(entry.source_id, generation.generation)
    return SourceRuntime(
        place=SourcePlace(entry.key),
        source_id=entry.source_id,
        nonce=described.nonce,
        process=opening.process,
        fingerprint=dict(described.fingerprint),
        kv_groups=described.kv_groups,
        signs_seen=opening.signs_seen,
        generation=generation.generation,
        parent=generation.parent or 0,
        received_seq=durable,
        durable_seq=durable,
        first_seq=generation.first_seq,
        last_sign=opening.signs_seen if generation.generation else None,
        cut=generation.cut if generation.generation else None,
    )


def _judged(ledger: Ledger, worker: WorkerRuntime) -> Recalled:
    newest = next(
        (
            verdict
            for stored in ledger.list_verdicts(worker.name, MAX_VERDICTS)
            if (verdict := types_pb2.WorkerVerdict.FromString(stored.payload)).final
            and verdict.incarnation == worker.incarnation
        ),
        None,
    )
    judged = newest.generation if newest is not None else 0
    if newest is not None:
        worker.last_verdict = Verdict(newest.verdict)
    if judged < worker.generation:
        worker.unjudged = f"restore {worker.generation} was not judged before the sidecar stopped"
        return Recalled(worker, worker.unjudged)
    if newest is not None and not worker.last_verdict.passes:
        return Recalled(worker, f"verdict {worker.last_verdict.name} of restore {judged}")
    return Recalled(worker, "")


def _base(incarnation: str) -> str:
    return incarnation.split(LIFE_SEPARATOR, maxsplit=1)[0]
