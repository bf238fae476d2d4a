"""From records to messages, on the thread that sends. What cannot be told becomes a hole."""

from collections.abc import Sequence

from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.log import note_error
from engine_adapters.report.records import HoleRecord, SourceRecord

# gRPC servers refuse messages above 4 MiB unless told otherwise; one larger record would be
# refused for ever.
RECORD_BYTES = 4 * 1024 * 1024 - 64 * 1024


def encode_batch(batch: Sequence[tuple[int, SourceRecord]]) -> pb.Records:
    """The message for records and their seqs, in order."""
    return pb.Records(records=[_encode(seq, record) for seq, record in batch])


def _encode(seq: int, record: SourceRecord) -> pb.Record:
    try:
        message = record.encode(seq)
        size = message.ByteSize()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it must not stop the others
        note_error("record", error)
        return _hole(seq, record, f"the record could not be encoded: {error}")
    if size > RECORD_BYTES:
        return _hole(seq, record, f"the record has {size} bytes, too many to send")
    return message


def _hole(seq: int, record: SourceRecord, reason: str) -> pb.Record:
    return HoleRecord(1, record.step, record.step, reason).encode(seq)
