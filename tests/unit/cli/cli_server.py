"""A real grpc.aio server that answers with what a test gives it, in a thread of its own."""

import asyncio
import threading
from collections import deque
from contextlib import contextmanager

import grpc
from tokenwitness.v1 import (
    checkpoint_pb2,
    checkpoint_pb2_grpc,
    verifier_pb2,
    verifier_pb2_grpc,
)

UNARY = {
    "PrepareMark": checkpoint_pb2.PrepareMarkResponse,
    "CompleteMark": checkpoint_pb2.CompleteMarkResponse,
    "Restored": checkpoint_pb2.RestoredResponse,
    "WaitVerdict": checkpoint_pb2.WaitVerdictResponse,
    "ListWorkers": verifier_pb2.ListWorkersResponse,
    "ListSessions": verifier_pb2.ListSessionsResponse,
    "ListVerdicts": verifier_pb2.ListVerdictsResponse,
    "ListMarks": verifier_pb2.ListMarksResponse,
    "VerifyNow": verifier_pb2.VerifyNowResponse,
}


class CannedSidecar:
    """`replies[method]` is a message, an (code, text) error, or a list of messages to stream.

    `asked[method]` keeps the requests. A stream ends after its list, or stays open if the list
    ends with None.
    """

    def __init__(self):
        self.address = ""
        self.replies = {}
        self.asked = {}

    def last(self, method):
        return self.asked[method][-1]

    async def unary(self, method, request, context):
        self.asked.setdefault(method, deque(maxlen=100)).append(request)
        reply = self.replies.get(method)
        if isinstance(reply, tuple):
            await context.abort(*reply)
        return reply if reply is not None else UNARY[method]()

    async def stream(self, method, request, context):
        self.asked.setdefault(method, deque(maxlen=100)).append(request)
        for reply in self.replies.get(method, []):
            if isinstance(reply, tuple):
                await context.abort(*reply)
            if reply is None:
                await asyncio.Event().wait()
            yield reply


def _servicer(base, canned):
    def unary(name):
        async def method(_self, request, context):
            return await canned.unary(name, request, context)

        return method

    def stream(name):
        async def method(_self, request, context):
            async for reply in canned.stream(name, request, context):
                yield reply

        return method

    names = [name for name in vars(base) if not name.startswith("_")]
    made = {name: unary(name) if name in UNARY else stream(name) for name in names}
    return type("Servicer", (base,), made)()


@contextmanager
def canned_sidecar():
    canned = CannedSidecar()
    loop = asyncio.new_event_loop()
    started = threading.Event()
    ended = None

    async def serve():
        nonlocal ended
        ended = asyncio.Event()
        server = grpc.aio.server()
        checkpoint_pb2_grpc.add_CheckpointServiceServicer_to_server(
            _servicer(checkpoint_pb2_grpc.CheckpointServiceServicer, canned), server
        )
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(
            _servicer(verifier_pb2_grpc.VerifierServiceServicer, canned), server
        )
        canned.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        started.set()
        await ended.wait()
        await server.stop(0)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(10)
    try:
        yield canned
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        assert not thread.is_alive()
        loop.close()
