"""Which log of the ledger a source's records go to."""

from sidecar.identity import Greeting
from sidecar.ledger.interface import Ledger
from sidecar.ledger.values import Registration, RegistrationOutcome, SourceDescription
from sidecar.recorder.opening import LIFE_SEPARATOR, Opening


def register(ledger: Ledger, greeting: Greeting) -> Registration:
    """The ledger's log of a source, new or known.

    Other memory under the same incarnation has a log of its own.

    Raises:
        LedgerError: the ledger did not take it.

    """
    description = SourceDescription(
        nonce=greeting.nonce,
        ranks=greeting.ranks,
        fingerprint=greeting.fingerprint,
        kv_groups=greeting.kv_groups,
    )
    opening = Opening("attached", greeting.process, greeting.signs_seen).encode()
    registration = ledger.source(
        greeting.worker, greeting.incarnation, greeting.key, description, reason=opening
    )
    if registration.outcome is not RegistrationOutcome.NONCE_CHANGED:
        return registration
    label = f"{greeting.incarnation}{LIFE_SEPARATOR}{greeting.nonce:016x}"
    return ledger.source(greeting.worker, label, greeting.key, description, reason=opening)
