"""The wire's one door: messages to core values and back. Nothing else of the sidecar's core
side imports pb2.
"""

from sidecar.wire.attestation import AttestationAssembler, Attested
from sidecar.wire.checks import MalformedMessage, name, session_id
from sidecar.wire.decode import (
    decode_fingerprint,
    decode_kv_groups,
    decode_record,
    decode_sampling,
    decode_source,
)
from sidecar.wire.encode import (
    encode_compared,
    encode_finding,
    encode_fingerprint,
    encode_kv_group,
    encode_mark,
    encode_sampling,
    encode_session_status,
    encode_session_verdict,
    encode_source,
    encode_worker_verdict,
)
from sidecar.wire.payload import decode_payload
from sidecar.wire.verdicts import decode_mark, decode_worker_verdict

check_name = name
check_session_id = session_id

__all__ = [
    "AttestationAssembler",
    "Attested",
    "MalformedMessage",
    "check_name",
    "check_session_id",
    "decode_fingerprint",
    "decode_kv_groups",
    "decode_mark",
    "decode_payload",
    "decode_record",
    "decode_sampling",
    "decode_source",
    "decode_worker_verdict",
    "encode_compared",
    "encode_finding",
    "encode_fingerprint",
    "encode_kv_group",
    "encode_mark",
    "encode_sampling",
    "encode_session_status",
    "encode_session_verdict",
    "encode_source",
    "encode_worker_verdict",
]
