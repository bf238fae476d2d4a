"""Configuration, encoding, parts, logging: the parts without threads."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.attestations import LiveSession, RankBody, SchedulerBody, SessionKv
from engine_adapters.report.columns import digest_bytes, u64
from engine_adapters.report.config import AdapterConfig, ConfigError
from engine_adapters.report.identity import KvGroupSpec
from engine_adapters.report.log import error_count, log_once, never_raises
from engine_adapters.report.parts import PART_BYTES, Attested, SessionTooLargeError, cut
from engine_adapters.report.policy import HoldPolicy
from engine_adapters.report.records import (
    BlockUpdate,
    CommitRecord,
    KvRows,
    LaunchRecord,
    RankStepRecord,
    Sampling,
    SessionEnd,
    SessionStart,
    WeightsRecord,
)


def test_extra_configuration_goes_over_the_environment():
    environ = {
        "TOKENWITNESS_WORKER": "from-env",
        "TOKENWITNESS_LAYER_GROUPS": "2",
        "TOKENWITNESS_SOMETHING_ELSE": "the sidecar's",
    }
    config = AdapterConfig.load({"worker": "from-extra"}, environ)
    assert (config.worker, config.layer_groups) == ("from-extra", 2)
    assert config.address == "127.0.0.1:9747"


def test_the_worker_is_called_after_its_host_unless_named():
    assert AdapterConfig.load({}, {}).worker


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ({"adress": "127.0.0.1:1"}, "adress"),
        ({"address": "nowhere"}, "address"),
        ({"address": "host:99999"}, "address"),
        ({"worker": "two words"}, "worker"),
        ({"worker": ""}, "worker"),
        ({"queue_bytes": "lots"}, "queue_bytes"),
        ({"queue_bytes": True}, "queue_bytes"),
        ({"suspect_after_ms": 1}, "suspect_after_ms"),
        ({"hold_mode": "maybe"}, "hold_mode"),
        ({"drill": "perhaps"}, "drill"),
        ({"engine_url": "localhost:8000"}, "engine_url"),
    ],
)
def test_a_bad_setting_is_named(extra, key):
    with pytest.raises(ConfigError, match="tokenwitness setting") as caught:
        AdapterConfig.load(extra, {})
    assert caught.value.key == key


def test_a_bad_value_in_the_environment_is_named_by_its_variable():
    with pytest.raises(ConfigError, match="TOKENWITNESS_IDLE_AFTER_MS"):
        AdapterConfig.load({}, {"TOKENWITNESS_IDLE_AFTER_MS": "soon"})


def test_launch_and_commit_mirror_the_contract():
    launch = LaunchRecord(
        step=3,
        rows=np.array([1, 2], dtype=np.int32),
        starts=[5, 9],
        counts=(1, 4),
        started=(
            SessionStart(1, "s", [7, 8], Sampling(temperature=0, seed=11), output_tokens=[1]),
        ),
        ended=(SessionEnd(4, pb.SESSION_END_REASON_ABORTED),),
        preempted_rows=[6],
        blocks=(BlockUpdate(1, 0, 2, [30, 31]),),
    )
    message = launch.encode(12)
    assert message.seq == 12
    assert list(message.launch.rows) == [1, 2]
    assert list(message.launch.counts) == [1, 4]
    assert list(message.launch.drafts) == []
    assert message.launch.started[0].sampling.seed == 11
    assert message.launch.ended[0].reason == pb.SESSION_END_REASON_ABORTED
    assert list(message.launch.blocks[0].blocks) == [30, 31]
    assert not Sampling().encode().HasField("seed")
    commit = CommitRecord(3, tokens=[5, 6], token_counts=[1, 1], rejected=[0, 2]).encode(13)
    assert list(commit.commit.rejected) == [0, 2]


def test_deferred_columns_are_read_when_encoded_and_again_when_sent_again():
    calls = []

    def late():
        calls.append(1)
        return np.array([[-1, 2]], dtype=np.int64)

    record = RankStepRecord(step=1, kv=(KvRows(0, np.array([4]), late),), sampler_digests=[-1])
    assert calls == []
    assert record.weight > 0
    assert calls == []
    first, second = record.encode(1), record.encode(1)
    assert first == second
    assert first.rank_step.kv[0].digests == b"\xff" * 8 + b"\x02" + b"\x00" * 7
    assert list(first.rank_step.sampler_digests) == [2**64 - 1]


def test_digests_of_the_wrong_width_are_refused():
    with pytest.raises(TypeError, match="8 bytes wide"):
        digest_bytes(np.zeros((2, 2), dtype=np.int32))


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_digests_are_the_same_bits_signed_or_not(values):
    array = np.array(values, dtype=np.uint64)
    assert list(u64(array.view(np.int64))) == values
    assert list(u64(values)) == values
    assert digest_bytes(array.view(np.int64)) == digest_bytes(array)


GROUPS = (KvGroupSpec(0, 16, 100, (0, 1), (2,), 64),)


def test_a_large_rank_attestation_is_cut_and_nothing_is_lost():
    kv = [
        SessionKv(row, f"s{row}", 0, 0, np.arange(60_000 * 4).reshape(-1, 4) + row)
        for row in range(3)
    ]
    names = [f"layer.{i}.{'x' * 200}" for i in range(6_000)]
    weights = WeightsRecord(names, np.arange(6_000), np.arange(6_000))
    body = RankBody(kv, weights, sampler_rows=[1], sampler_digests=[2])
    parts = list(cut(Attested(9, 5, idle=False, body=body), GROUPS))
    assert len(parts) > 5
    assert max(part.ByteSize() for part in parts) <= PART_BYTES
    assert [part.part for part in parts] == list(range(len(parts)))
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [name for part in parts for name in part.rank.weights.names] == names
    for session in kv:
        pieces = [p for part in parts for p in part.rank.kv if p.row == session.row]
        position = 0
        for piece in pieces:
            assert piece.first_position == position
            position += len(piece.digests) // 32
        joined = b"".join(piece.digests for piece in pieces)
        assert np.frombuffer(joined, "<u8").reshape(-1, 4).tolist() == session.digests.tolist()


def live(tokens: int, name: str = "s") -> LiveSession:
    return LiveSession(1, name, tokens, tokens - 1, 0, 1, np.full(tokens, 100_000), Sampling())


def test_a_scheduler_attestation_is_cut_between_sessions():
    body = SchedulerBody(4, [live(100_000, f"s{i}") for i in range(8)])
    parts = list(cut(Attested(9, 5, idle=True, body=body), ()))
    assert len(parts) > 1
    assert {part.scheduler.committed_step for part in parts} == {4}
    names = [s.session_id for part in parts for s in part.scheduler.sessions]
    assert names == [f"s{i}" for i in range(8)]
    assert max(part.ByteSize() for part in parts) <= PART_BYTES


def test_an_empty_attestation_is_one_part():
    [part] = cut(Attested(9, 5, idle=True, body=SchedulerBody(0, ())), ())
    assert part.last
    assert part.HasField("scheduler")


def test_a_session_without_rows_is_told_of():
    body = RankBody([SessionKv(1, "s", 0, 7, np.zeros((0, 2), dtype=np.int64))])
    [part] = cut(Attested(9, 5, idle=True, body=body), ())
    assert part.rank.kv[0].session_id == "s"
    assert part.rank.kv[0].digests == b""


def test_a_session_that_fits_in_no_part_is_named():
    body = SchedulerBody(4, [live(500_000, "long")])
    with pytest.raises(SessionTooLargeError, match="long"):
        list(cut(Attested(9, 5, idle=True, body=body), ()))


def test_a_policy_changes_only_what_the_welcome_names():
    mine = HoldPolicy.of_config(AdapterConfig(hold_deadline_ms=700))
    assert mine.told(pb.HoldPolicy()) == mine
    told = mine.told(pb.HoldPolicy(mode=pb.HOLD_MODE_NONE, fail_closed=True))
    assert (told.waits, told.fails_closed, told.deadline_s) == (False, True, 0.7)
    assert mine.told(pb.HoldPolicy(mode=2, deadline_ms=2**32 - 1)).deadline_s <= 24 * 3_600


def test_a_guarded_hook_returns_its_default_and_the_error_is_counted(caplog):
    @never_raises("default")
    def hook(*, fail: bool) -> str:
        if fail:
            raise RuntimeError("broken")
        return "fine"

    assert hook(fail=False) == "fine"
    assert [hook(fail=True), hook(fail=True)] == ["default", "default"]
    assert error_count() == 2
    assert caplog.text.count("the engine goes on") == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_guarded_hook_does_not_swallow_the_engines_end(stop):
    @never_raises(None)
    def hook() -> None:
        raise stop

    with pytest.raises(stop):
        hook()


def test_a_message_is_logged_once_for_its_key(caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3):
        log_once("k", "said once")
    assert caplog.text.count("said once") == 1
