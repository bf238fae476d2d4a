"""Protobuf messages as plain documents, for printing and for programs.

Unlike protobuf's own JSON: 64-bit numbers stay numbers, enums lose the prefix of their type,
bytes are hexadecimal, and fields that are at their default are there.
"""

import re
from typing import Any, TypeAlias

from google.protobuf.message import Message

Document: TypeAlias = dict[str, Any]


def to_document(message: Message) -> Document:
    """Names as in the .proto files. A message or optional field that is absent is None.

    Of a `oneof`, only the member that is set is there.
    """
    document: Document = {}
    for field in message.DESCRIPTOR.fields:
        if _is_unset_member(message, field):
            continue
        value = getattr(message, field.name)
        if field.is_repeated:
            document[field.name] = [_value(field, item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            document[field.name] = None
        else:
            document[field.name] = _value(field, value)
    return document


def _is_unset_member(message: Message, field: Any) -> bool:
    group = field.containing_oneof
    # An `optional` field stands in a oneof of its own, which is no choice.
    return (
        group is not None and len(group.fields) > 1 and message.WhichOneof(group.name) != field.name
    )


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_document(value)
    if field.enum_type is not None:
        return _enum_name(field.enum_type, value)
    return value.hex() if isinstance(value, bytes) else value


def _enum_name(kind: Any, number: int) -> str:
    known = kind.values_by_number.get(number)
    if known is None:
        # A newer sidecar's word. Never taken for a pass, for it has no name here.
        return str(number)
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.name).upper() + "_"
    return str(known.name).removeprefix(prefix)
