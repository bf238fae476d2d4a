"""Records of the control log: canonical JSON, one object per record.

Keys are sorted, there are no spaces, text is UTF-8: equal values have equal bytes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sidecar.core.events import KvGroup, SourceKey, SourceKind

from .values import (
    Generation,
    LostTail,
    Mark,
    MarkOutcome,
    RecordKind,
    SourceDescription,
    SourceEntry,
    StoredAttestation,
    StoredVerdict,
)

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One record to be written. `body` lies in a table of its own, named by its digest."""

    kind: RecordKind
    key: str
    worker: str
    unix_ns: int
    payload: bytes
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Records of a source up to `last_id` are gone; the rest's chain goes on from `chain`.

    `tips` is the newest seq by generation when it was cut. `snapshot`: digest of the snapshot
    that stands for what is gone, empty when the whole log went.
    """

    source_id: int
    last_id: int
    tips: Mapping[int, int]
    chain: bytes
    snapshot: bytes


def dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def load(payload: bytes) -> Fields:
    """Raises ValueError when the payload is not a JSON object."""
    fields = json.loads(payload)
    if not isinstance(fields, dict):
        raise ValueError(f"expected an object, got {type(fields).__name__}")  # noqa: TRY004
    return fields


def mark_key(worker: str, name: str) -> str:
    # Neither name can hold a line feed.
    return f"{worker}\n{name}"


def source_record(entry: SourceEntry) -> ControlRecord:
    described = entry.description
    fields = {
        "source": entry.source_id,
        "worker": entry.worker,
        "incarnation": entry.incarnation,
        "kind": int(entry.key.kind),
        "rank": entry.key.rank,
        "nonce": described.nonce,
        "ranks": described.ranks,
        "fingerprint": dict(described.fingerprint),
        "kv_groups": [asdict(group) for group in described.kv_groups],
    }
    key = f"{entry.source_id}"
    return ControlRecord(
        RecordKind.SOURCE, key, entry.worker, entry.registered_unix_ns, dump(fields)
    )


def source_entry(payload: bytes, unix_ns: int) -> SourceEntry:
    fields = load(payload)
    groups = tuple(
        KvGroup(
            **{
                **group,
                "layers": tuple(group["layers"]),
                "digest_layers": tuple(group["digest_layers"]),
            }
        )
        for group in fields["kv_groups"]
    )
    return SourceEntry(
        source_id=fields["source"],
        worker=fields["worker"],
        incarnation=fields["incarnation"],
        key=SourceKey(SourceKind(fields["kind"]), fields["rank"]),
        description=SourceDescription(
            nonce=fields["nonce"],
            ranks=fields["ranks"],
            fingerprint=fields["fingerprint"],
            kv_groups=groups,
        ),
        registered_unix_ns=unix_ns,
    )


def generation_record(entry: SourceEntry, generation: Generation) -> ControlRecord:
    fields = {**asdict(generation), "source": entry.source_id}
    del fields["opened_unix_ns"]
    return ControlRecord(
        RecordKind.GENERATION,
        f"{entry.source_id}",
        entry.worker,
        generation.opened_unix_ns,
        dump(fields),
    )


def generation_of(payload: bytes, unix_ns: int) -> tuple[int, Generation]:
    """The source's id and its generation."""
    fields = load(payload)
    source_id = fields.pop("source")
    return source_id, Generation(**fields, opened_unix_ns=unix_ns)


def mark_record(mark: Mark) -> ControlRecord:
    fields = {**asdict(mark), "outcome": int(mark.outcome)}
    unix_ns = mark.completed_unix_ns or mark.made_unix_ns
    key = mark_key(mark.worker, mark.name)
    return ControlRecord(RecordKind.MARK, key, mark.worker, unix_ns, dump(fields))


def mark_of(payload: bytes) -> Mark:
    fields = load(payload)
    return Mark(**{**fields, "outcome": MarkOutcome(fields["outcome"])})


def verdict_record(verdict: StoredVerdict, body_digest: bytes) -> ControlRecord:
    fields = {
        "worker": verdict.worker,
        "verification": verdict.verification_id,
        "body": body_digest.hex(),
    }
    return ControlRecord(
        RecordKind.VERDICT,
        mark_key(verdict.worker, verdict.verification_id),
        verdict.worker,
        verdict.unix_ns,
        dump(fields),
        verdict.payload,
    )


def verdict_of(payload: bytes, unix_ns: int, body: bytes) -> StoredVerdict:
    fields = load(payload)
    return StoredVerdict(fields["worker"], fields["verification"], unix_ns, body)


def attestation_record(
    entry: SourceEntry, attestation: StoredAttestation, body_digest: bytes
) -> ControlRecord:
    fields = {
        "source": attestation.source_id,
        "generation": attestation.generation,
        "attest_id": attestation.attest_id,
        "step": attestation.step,
        "cut": attestation.cut,
        "body": body_digest.hex(),
    }
    return ControlRecord(
        RecordKind.ATTESTATION,
        f"{attestation.source_id}",
        entry.worker,
        attestation.unix_ns,
        dump(fields),
        attestation.payload,
    )


def attestation_of(payload: bytes, unix_ns: int, body: bytes) -> StoredAttestation:
    fields = load(payload)
    return StoredAttestation(
        source_id=fields["source"],
        generation=fields["generation"],
        attest_id=fields["attest_id"],
        step=fields["step"],
        cut=fields["cut"],
        unix_ns=unix_ns,
        payload=body,
    )


def cut_record(entry: SourceEntry, cut: Cut, unix_ns: int) -> ControlRecord:
    fields = {
        "source": cut.source_id,
        "last_id": cut.last_id,
        "tips": {str(generation): seq for generation, seq in cut.tips.items()},
        "chain": cut.chain.hex(),
        "snapshot": cut.snapshot.hex(),
    }
    return ControlRecord(RecordKind.CUT, f"{cut.source_id}", entry.worker, unix_ns, dump(fields))


def cut_of(payload: bytes) -> Cut:
    fields = load(payload)
    return Cut(
        source_id=fields["source"],
        last_id=fields["last_id"],
        tips={int(generation): seq for generation, seq in fields["tips"].items()},
        chain=bytes.fromhex(fields["chain"]),
        snapshot=bytes.fromhex(fields["snapshot"]),
    )


def lost_tail_record(lost: LostTail, unix_ns: int) -> ControlRecord:
    return ControlRecord(RecordKind.LOST_TAIL, "", "", unix_ns, dump(asdict(lost)))


def lost_tail_of(payload: bytes) -> LostTail:
    return LostTail(**load(payload))
