"""Whether something has arrived that the sidecar does not acknowledge by itself."""

from dataclasses import dataclass

# On a stream that lived on for longer than this, what was sent has arrived: a peer that does
# not acknowledge its bytes breaks the connection sooner.
SETTLED_S = 15.0


@dataclass(slots=True)
class Delivery:
    """How far something got that is not acknowledged by itself: it has arrived once a record
    that was first sent after it on the same stream is acknowledged.
    """

    stream: int = 0
    proof_seq: int = 0
    sent_at: float = 0.0
    arrived: bool = False

    def sent(self, stream: int, proof_seq: int, now: float) -> None:
        self.stream, self.proof_seq, self.sent_at = stream, proof_seq, now

    def acked(self, stream: int, seq: int) -> None:
        if stream == self.stream and seq >= self.proof_seq:
            self.arrived = True

    def settle(self, stream: int, now: float) -> None:
        if stream == self.stream and now - self.sent_at > SETTLED_S:
            self.arrived = True
