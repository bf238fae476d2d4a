"""Names of shadow requests, which a recorder can tell from users' requests.

A user chooses request ids freely, so a mere prefix would let anybody hide a session from
verification. Each id therefore carries a keyed digest.
"""

import hashlib
import re
import secrets

PREFIX = "tokenwitness-shadow-"
# The engine puts its own words around the id (vLLM: "cmpl-" before, "-0-" and a suffix after).
_ID = re.compile(re.escape(PREFIX) + r"([0-9a-f]{16})-([0-9a-f]{16})(?![0-9a-f])")


class ShadowIds:
    """Makes and recognises ids. Holds no state but its key, so it needs no bound.

    Keep the key with the ledger: sessions of an older sidecar are then still recognised.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key or secrets.token_bytes(32)

    def new(self) -> str:
        """An id that was never given out before."""
        nonce = secrets.token_hex(8)
        return f"{PREFIX}{nonce}-{self._seal(nonce)}"

    def is_shadow(self, session_id: str) -> bool:
        """Whether the engine's session belongs to a replay made with this key."""
        found = _ID.search(session_id)
        return found is not None and secrets.compare_digest(found[2], self._seal(found[1]))

    def _seal(self, nonce: str) -> str:
        return hashlib.blake2b(nonce.encode(), key=self.key, digest_size=8).hexdigest()
