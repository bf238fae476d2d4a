"""What the services and the verification ask of each other.

The services notice restores and own the streams; the verification decides. Neither knows the
other's insides: `RestoreListener` and `Verifier` are what the services call,
`VerificationHost` is what the verification calls. All of it runs in one event loop.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sidecar.core.events import SourceKey
from sidecar.core.verdicts import Verdict, WorkerVerdict
from sidecar.gate import GatePosition
from sidecar.identity import RestoreEvidence, SignSeen
from sidecar.ledger.interface import Ledger
from sidecar.ledger.values import Mark
from sidecar.registry import Attested, WorkerRuntime


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """Something about a worker changed; what it is now stands in the registry."""

    worker: str


WatchEvent: TypeAlias = WorkerVerdict | Mark | StatusChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreNotice:
    """How one source's restore was noticed. `sign` None: seen from its Hello alone.

    A Hello can be followed by the Sign of the same restore, which then comes as a second
    notice of the same source and generation and tells whether the source holds its step.
    """

    evidence: RestoreEvidence
    why: str
    unix_ns: int
    sign: SignSeen | None = None


class RestoreListener(Protocol):
    """Told of restores. Calls come from the recorder's streams: return at once, never raise."""

    def on_sign(
        self, worker: WorkerRuntime, generation: int, source: SourceKey, notice: RestoreNotice
    ) -> None:
        """A source of restore `generation` was noticed; once per source, or twice (see above).

        The gate is closed already and every source's `cut` is set. The first call of a
        generation should start its verification, the others add to it.
        """

    def on_restart(self, worker: WorkerRuntime, old: str, new: str) -> None:
        """The worker, or one source of it, started anew: what was in flight is gone.

        `old` and `new` are incarnations, equal when only a source lost its memory. `worker` is
        the new life; the gate is closed until it is judged RESTARTED and somebody, or a later
        verification, opens it.
        """


class Continuation(enum.Enum):
    """Whether a verification replays a shadow decode."""

    REPLAY = "replay"
    SKIP = "skip"


class WaitFor(enum.Enum):
    """Which verdict a waiter wants."""

    STATE = "state"
    FINAL = "final"


class UnknownVerificationError(Exception):
    """No verification of this id, or none of this worker yet."""

    def __init__(self, worker: str, verification_id: str | None) -> None:
        what = f"verification {verification_id!r}" if verification_id else "verification"
        super().__init__(f"no {what} of worker {worker!r} is known")


class Verifier(RestoreListener, Protocol):
    """Runs verifications."""

    def start(
        self,
        worker: WorkerRuntime,
        trigger: RestoreEvidence,
        *,
        mark: Mark | None,
        deadline_s: float,
        continuation: Continuation,
    ) -> str:
        """Starts a verification, or names the running one of the same restore; returns its id."""

    async def wait(
        self, worker: str, verification_id: str | None, *, timeout_s: float, wait_for: WaitFor
    ) -> WorkerVerdict | None:
        """The verdict; None (or one that is not final) when `timeout_s` ended first.

        `verification_id` None: the newest of the worker.

        Raises:
            UnknownVerificationError: there is none.

        """

    def tend(self, worker: WorkerRuntime) -> None:
        """Called a few times a second for every worker: mends its record after a hole."""

    async def close(self) -> None:
        """Ends running verifications; called before the ledger is closed."""


class AttestationOrigin(enum.Enum):
    """Which attestations answer a request."""

    # Those that sources took by themselves after the sign of their present generation are
    # waited for where a source holds its step, and taken wherever they come.
    AFTER_SIGN = "after_sign"
    # Only such as were asked for now.
    FRESH = "fresh"


class VerificationHost(Protocol):
    """What a verification may ask of the services."""

    @property
    def ledger(self) -> Ledger:
        """The record. A source's `source_id`, `generation` and `cut` are its coordinates."""

    def worker(self, name: str) -> WorkerRuntime | None:
        """The worker as it is now; `live`, `sources` and `held` are its state."""

    async def request_attestation(
        self,
        worker: WorkerRuntime,
        sources: Sequence[SourceKey],
        *,
        weights: bool,
        deadline_s: float,
        origin: AttestationOrigin = AttestationOrigin.AFTER_SIGN,
    ) -> dict[SourceKey, Attested]:
        """Asks `sources` what their memory holds; has an entry for each, whatever happens.

        Waits for sources that are not attached, asks again over a new stream, and gives
        AttestationFailed with the reason at the deadline (seconds).
        """

    def release(
        self,
        worker: WorkerRuntime,
        source: SourceKey,
        attest_id: int,
        verdict: Verdict,
        *,
        go: bool,
    ) -> bool:
        """Answers a held source. False: it has no stream now; it will not hear."""

    async def wait_progress(
        self,
        worker: WorkerRuntime,
        predicate: Callable[[WorkerRuntime], bool],
        timeout_s: float,
    ) -> bool:
        """Whether `predicate` became true; looked at after every batch of records."""

    def set_gate(
        self, worker: WorkerRuntime, generation: int, position: GatePosition, reason: str
    ) -> bool:
        """Decides a worker's gate. False, and no change: it was restored again since."""

    def publish(self, event: WatchEvent) -> None:
        """Tells watchers. A WorkerVerdict also becomes the worker's last verdict and is counted."""

    def register_shadow_ids(self, worker: WorkerRuntime, session_ids: Iterable[str]) -> None:
        """Marks sessions as the sidecar's own replays, not to be judged or listed as users'."""
