"""What the ledger keeps of how a generation was opened.

Within one generation a source's process and its count of signs never change: a change of either
opens the next one. So they are written once, in the generation's reason, and a sidecar that was
restarted still notices a restore that happened while it was away.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from sidecar.identity import ProcessIdentity

# Between an incarnation and the nonce of a source that has other memory than it began with.
# Not in the alphabet of incarnations.
LIFE_SEPARATOR = "+"


@dataclass(frozen=True, slots=True)
class Opening:
    """Why a generation was opened, and as what process."""

    why: str
    process: ProcessIdentity
    signs_seen: int

    def encode(self) -> str:
        """One line of text."""
        return json.dumps(
            {"why": self.why, "process": asdict(self.process), "signs_seen": self.signs_seen},
            sort_keys=True,
        )

    @classmethod
    def decode(cls, text: str) -> "Opening":
        """The opening that `text` says.

        A text that says none gives a process that equals no other: the source then counts as
        restored, which is verified and does no harm.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            return cls(
                why=str(fields["why"]),
                process=ProcessIdentity(**fields["process"]),
                signs_seen=int(fields["signs_seen"]),
            )
        except (ValueError, TypeError, KeyError):
            return cls(why=text, process=ProcessIdentity(0, 0, "", ""), signs_seen=0)
