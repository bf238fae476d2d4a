"""The checksum chain of one log: each record is bound to everything before it.

    link = blake2b-128(previous link | source digest | header | payload)

The formula is the file format: docs/ledger.md writes it out byte by byte, and golden values
pin it. A chain finds damage and edits of single rows; it is no signature: whoever can rewrite
the whole file can rewrite the chain.
"""

import hashlib
import struct

DIGEST_BYTES = 16
PERSON = b"tokenwitness.1"
# id, generation, seq, count, step, kind, received_unix_ns, payload length
HEADER = struct.Struct("<QIQQQHqQ")


def source_digest(worker: str, incarnation: str, kind: int, rank: int) -> bytes:
    """Stands for the source in every link of its chain. Fields are length-prefixed."""
    parts = [worker.encode(), incarnation.encode(), struct.pack("<II", kind, rank)]
    packed = b"".join(struct.pack("<I", len(part)) + part for part in parts)
    return hashlib.blake2b(packed, digest_size=DIGEST_BYTES, person=PERSON).digest()


CONTROL_DIGEST = hashlib.blake2b(b"control", digest_size=DIGEST_BYTES, person=PERSON).digest()


def genesis(source: bytes) -> bytes:
    """The value before a log's first record; never zero, so that absent is never valid."""
    return hashlib.blake2b(b"genesis" + source, digest_size=DIGEST_BYTES, person=PERSON).digest()


def link(  # noqa: PLR0917 - the file format, in the order of its bytes
    previous: bytes,
    source: bytes,
    record_id: int,
    generation: int,
    seq: int,
    count: int,
    step: int,
    kind: int,
    received_unix_ns: int,
    payload: bytes,
) -> bytes:
    """The chain value after a record."""
    digest = hashlib.blake2b(previous, digest_size=DIGEST_BYTES, person=PERSON)
    digest.update(source)
    digest.update(
        HEADER.pack(record_id, generation, seq, count, step, kind, received_unix_ns, len(payload))
    )
    digest.update(payload)
    return digest.digest()


def control_link(
    previous: bytes, control_id: int, kind: int, unix_ns: int, payload: bytes
) -> bytes:
    """The same formula for the control log: its id is its seq, generation and step are 0."""
    return link(previous, CONTROL_DIGEST, control_id, 0, control_id, 1, 0, kind, unix_ns, payload)


def body_digest(data: bytes) -> bytes:
    """Name of a body or snapshot: what a control record says about bytes kept elsewhere."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES, person=PERSON).digest()
