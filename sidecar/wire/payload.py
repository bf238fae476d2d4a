"""Stored records: the serialized messages that a ledger keeps, back into core events."""

from google.protobuf.message import DecodeError
from tokenwitness.v1 import recorder_pb2

from sidecar.core.events import Event
from sidecar.wire.decode import decode_record
from sidecar.wire.errors import MalformedMessage


def decode_payload(payload: bytes) -> Event:
    """The event of one serialized Record. Raises MalformedMessage."""
    try:
        record = recorder_pb2.Record.FromString(payload)
    except DecodeError as error:
        raise MalformedMessage(
            "record", len(payload), f"its bytes do not parse: {error}"
        ) from error
    return decode_record(record)
