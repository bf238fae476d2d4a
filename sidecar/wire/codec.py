"""The wire's one door: messages to core values and back."""

from sidecar.wire.attestation import decode_attestation
from sidecar.wire.decode import (
    decode_fingerprint,
    decode_kv_group,
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
    encode_verdict,
)
from sidecar.wire.errors import MalformedMessage
from sidecar.wire.payload import decode_payload

__all__ = [
    "MalformedMessage",
    "decode_attestation",
    "decode_fingerprint",
    "decode_kv_group",
    "decode_kv_groups",
    "decode_payload",
    "decode_record",
    "decode_sampling",
    "decode_source",
    "encode_compared",
    "encode_finding",
    "encode_fingerprint",
    "encode_kv_group",
    "encode_mark",
    "encode_sampling",
    "encode_session_status",
    "encode_session_verdict",
    "encode_source",
    "encode_verdict",
]
