"""Attestations that no step boundary served, read on a thread of the reporter."""

import threading
import time
from collections.abc import Callable

from engine_adapters.report.attestations import AttestationBody, DueAttestation
from engine_adapters.report.duties import Duties
from engine_adapters.report.log import note_error


class IdleReader:
    """`read` is the engine role's: None where memory cannot be read safely now. `send` gets
    what was read and the step that the engine stood at.
    """

    def __init__(
        self,
        duties: Duties,
        read: Callable[[DueAttestation], AttestationBody | None],
        send: Callable[[DueAttestation, AttestationBody, int], None],
        step: Callable[[], int],
    ) -> None:
        self._duties = duties
        self._read = read
        self._send = send
        self._step = step

    def tick(self, now: float) -> None:
        """Starts reading what has waited too long. Reading takes long, so it has a thread for
        the while: whoever called this has to go on polling.
        """
        if not self._duties.attention:
            return
        due = self._duties.idle_begin(now)
        if due is not None:
            threading.Thread(
                target=self._serve, args=(due,), name="tokenwitness-idle", daemon=True
            ).start()

    def _serve(self, due: DueAttestation) -> None:
        step = self._step()
        try:
            body = self._read(due)
        except Exception as error:  # noqa: BLE001 - the engine's thread may still succeed
            note_error("idle attestation", error)
            body = None
        if body is None or self._step() != step:
            self._duties.idle_later(due, time.monotonic())
        elif self._duties.idle_end(due):
            self._send(due, body, step)
