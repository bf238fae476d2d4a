"""A real engine, dumped by CRIU in mid-decode and restored, as the sidecar judges it.

All tests share one engine: each leaves it serving.
"""

import shutil
from collections.abc import Iterator

import pytest

from tests.support.worker import NAME, Worker, plans
from tools.demo.criu import Criu
from tools.demo.images import open_process_image
from tools.demo.kv_map import read_kv_map
from tools.demo.places import CHECKOUT, scratch_folder
from tools.demo.streams import Streams
from tools.demo.verdicts import Verdict

pytestmark = [pytest.mark.criu, pytest.mark.engine, pytest.mark.timeout(420)]

LOGS = CHECKOUT / ".cache" / "e2e"
TOKENS_BEFORE = 30
TOKENS_AFTER = 60
LAYER = 13


@pytest.fixture(scope="module")
def shared_worker(criu: Criu) -> Iterator[Worker]:
    # Logs and ledger of the newest run stay there to be looked at.
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    with scratch_folder("e2e-") as images:
        worker = Worker(criu, LOGS, images)
        try:
            worker.start_engine()
            yield worker
        finally:
            worker.end()


@pytest.fixture
def worker(shared_worker: Worker) -> Iterator[Worker]:
    """The shared worker, whole; started anew if the test before broke it."""
    if not shared_worker.healthy():
        shared_worker.engine.tree.end()
        shared_worker.start_engine()
    yield shared_worker
    shared_worker.hang_up_inside()


def in_mid_decode(worker: Worker, sessions: tuple) -> Streams:
    streams = worker.open(sessions)
    streams.wait_for_tokens(TOKENS_BEFORE)
    return streams


def assert_clients_never_noticed(worker: Worker, streams: Streams) -> None:
    """The streams go on, and all of them is what nobody's interruption would have given."""
    streams.wait_for_more(TOKENS_AFTER)
    streams.leave()
    streams.raise_errors()
    assert streams.tokens() == worker.uninterrupted(streams)


def assert_exact(verdict: Verdict, sessions: int) -> None:
    assert verdict.name == "RESUMED_EXACT", verdict.reasons()
    assert verdict.final
    assert set(verdict.session_verdicts().values()) == {"RESUMED_EXACT"}
    assert len(verdict.session_verdicts()) == sessions
    assert verdict.compared["kv_rows"] >= sessions * TOKENS_BEFORE
    assert verdict.compared["tokens"] >= sessions * TOKENS_BEFORE
    assert verdict.compared["tensors"] > 0
    assert verdict.compared["shadow_tokens"] + verdict.compared["recorded_tokens"] > 0


def test_clean_restore_is_exact_and_clients_never_notice(worker: Worker):
    sessions = plans("clean")
    streams = in_mid_decode(worker, sessions)

    checkpoint = worker.marked_dump("clean")
    worker.restore(checkpoint)
    verdict = worker.restored("clean")

    assert_exact(verdict, len(sessions))
    assert_clients_never_noticed(worker, streams)


def test_no_token_reaches_a_client_before_the_verdict(worker: Worker):
    streams = in_mid_decode(worker, plans("hold"))
    checkpoint = worker.marked_dump("hold")
    before = streams.counts()
    worker.restore(checkpoint)
    verdict = worker.restored("hold")

    assert_exact(verdict, len(before))
    judged = verdict.document["state_judged_unix_ns"]
    early = [sum(at < judged for at in stream.arrivals) for stream in streams.all]
    # What was on its way when the network was locked still arrives; a worker that ran on would
    # have given tens of tokens in that time.
    on_their_way = 3
    assert all(now <= then + on_their_way for now, then in zip(early, before, strict=True)), (
        before,
        early,
    )
    streams.leave()


def test_flipped_bit_is_found_where_it_is(worker: Worker):
    streams = in_mid_decode(worker, plans("bitflip"))
    checkpoint = worker.marked_dump("bitflip")
    kv_map = read_kv_map(worker.folder, rank=0)
    request = streams.all[0].request_id
    position = kv_map.session(request).positions - 5
    target = kv_map.target(request, LAYER, position)
    open_process_image(checkpoint.images, target.pid).flip_bit(target.address, 3)

    worker.restore(checkpoint)
    verdict = worker.restored("bitflip")

    assert verdict.name == "KV_MISMATCH", verdict.reasons()
    damaged = [s for s, v in verdict.session_verdicts().items() if v == "KV_MISMATCH"]
    assert damaged == [target.session_id]
    (finding,) = [f for f in verdict.findings() if f["verdict"] == "KV_MISMATCH"]
    assert finding["rank"] == 0
    assert LAYER in finding["layers"]
    assert len(finding["layers"]) < 30
    assert (finding["position_starts"], finding["position_ends"]) == ([position], [position + 1])
    streams.leave()


def test_restore_that_nobody_announced_is_noticed(worker: Worker):
    sessions = plans("unannounced")
    streams = in_mid_decode(worker, sessions)
    known = len(worker.sidecar.verdicts(NAME))

    checkpoint = worker.criu.dump(worker.engine.tree, worker.images / "unannounced")
    worker.restore(checkpoint)
    verdict = worker.wait_new_verdict(known)

    assert verdict.trigger in {"process_recreated", "stood_still", "reattach"}
    assert_exact(verdict, len(sessions))
    assert_clients_never_noticed(worker, streams)


def test_sidecar_that_was_killed_meanwhile_still_knows(worker: Worker):
    sessions = plans("sidecar-killed")
    streams = in_mid_decode(worker, sessions)

    checkpoint = worker.marked_dump("sidecar-killed")
    worker.restart_sidecar()
    worker.restore(checkpoint)
    worker.sidecar.wait_attached(NAME)
    verdict = worker.restored("sidecar-killed")

    assert_exact(verdict, len(sessions))
    assert_clients_never_noticed(worker, streams)


def test_rollback_is_judged_by_the_future_that_was(worker: Worker):
    sessions = plans("rollback")
    streams = [worker.open_inside(plan) for plan in sessions]
    for stream in streams:
        stream.wait_for_tokens(TOKENS_BEFORE)
    worker.sidecar.mark(NAME, "rollback")
    checkpoint = worker.criu.dump_and_leave_running(worker.engine.tree, worker.images / "rollback")
    worker.sidecar.mark_taken(NAME, "rollback", str(checkpoint.images))
    for stream in streams:
        stream.wait_for_tokens(len(stream.tokens()) + 40)
    worker.engine.tree.kill()
    seen = [stream.tokens() for stream in streams]

    worker.restore(checkpoint)
    verdict = worker.restored("rollback")

    assert_exact(verdict, len(sessions))
    assert verdict.document["rolled_back_steps"] >= 40
    assert verdict.compared["recorded_tokens"] >= len(sessions)
    for stream, before in zip(streams, seen, strict=True):
        stream.wait_for_tokens(len(before) + TOKENS_AFTER)
        assert stream.leave() == ""
        again = stream.tokens()[len(before) :]
        assert again[0][0] < before[-1][0]
        original = dict(before)
        assert [token for number, token in again if number in original] == [
            original[number] for number, _ in again if number in original
        ]


def test_restart_under_the_same_name_is_no_restore(worker: Worker):
    streams = in_mid_decode(worker, plans("restart"))
    known = len(worker.sidecar.verdicts(NAME))
    worker.engine.tree.destroy()
    worker.start_engine()
    verdict = worker.wait_new_verdict(known)

    assert verdict.name == "RESTARTED", verdict.reasons()
    assert len(verdict.session_verdicts()) == len(streams.all)
    streams.wait_done()
