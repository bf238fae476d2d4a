"""One restore, from its sign to its final verdict.

`evidence` joins what sources attest with what the ledger has, `replay` follows the
continuation, `run` puts the phases in order, `service` keeps one run per restore.
"""
