"""What the digest refuses, and why. All of these are mistakes of the caller, never of the data."""


class DigestError(ValueError):
    """Root of what this package raises."""


class RowsError(DigestError):
    """Rows that are not bytes: wrong dtype, or no dimension to hold a row."""


class LayersError(DigestError):
    """Layers, row digests and layers per digest that do not fit one another."""


class UnreadableTensorError(DigestError):
    """A tensor without plain bytes of its own: meta, sparse, quantised or opaque."""
