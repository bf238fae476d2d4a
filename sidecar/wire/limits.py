"""Bounds of one message, so that no sender can make the sidecar allocate without limit."""

# Rows number live sessions; columns are as long as the highest row.
MAX_ROW = 1 << 20
# A slot costs about 45 bytes of the sidecar's memory once it was written.
MAX_SLOTS = 1 << 25
MAX_BLOCK_SIZE = 1 << 16
MAX_LAYERS = 4096
MAX_NAME = 128
MAX_SESSION_ID = 256
MAX_TENSOR_NAME = 512
MAX_TEXT = 4096
MAX_FINGERPRINT_NAMES = 256
MAX_STEP = (1 << 63) - 1
