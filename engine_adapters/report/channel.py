"""How the channel to the sidecar behaves, and what the sidecar's refusals mean to an operator."""

import grpc

CHANNEL_OPTIONS = (
    # A channel of its own connection: no shared backoff, nothing inherited over a fork.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # A dead peer is noticed because each second's heartbeat stays unacknowledged for longer than
    # the timeout (gRPC makes it the socket's TCP_USER_TIMEOUT). The ping itself is for a peer
    # whose kernel lives; more often than each five minutes servers take it for an attack.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)

# The sidecar understood and refused: the remedy is an operator's.
REFUSALS = {
    grpc.StatusCode.ALREADY_EXISTS: (
        "two workers have one name; stop one or set another `worker` in the adapter's settings"
    ),
    grpc.StatusCode.FAILED_PRECONDITION: (
        "adapter and sidecar speak different versions; install the same release of both"
    ),
    grpc.StatusCode.INVALID_ARGUMENT: "the sidecar found a message malformed; see its log",
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        "a message is too large for the sidecar or it has too many workers; see its log"
    ),
    grpc.StatusCode.UNIMPLEMENTED: "what answers at this address is no tokenwitness sidecar",
    grpc.StatusCode.UNAUTHENTICATED: "the sidecar wants credentials",
    grpc.StatusCode.PERMISSION_DENIED: "the sidecar does not allow this worker",
}
