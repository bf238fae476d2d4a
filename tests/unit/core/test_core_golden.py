"""Judged cases written out in full: what an operator reads. Numbers are literal, nothing is
simulated.
"""

import numpy as np

from sidecar.core.events import (
    BlockUpdate,
    Commit,
    Fingerprint,
    KvGroup,
    KvRows,
    Launch,
    LiveSession,
    RankAttestation,
    RankStep,
    Sampling,
    SchedulerAttestation,
    SessionKv,
    SessionStart,
    SourceKey,
    SourceKind,
    TensorDigest,
    WeightDigests,
)
from sidecar.core.evidence import RankEvidence, SourceEvidence, StateEvidence
from sidecar.core.judge import judge_state
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState
from sidecar.core.verdicts import Compared, Finding, SessionVerdict, Verdict

# Two digests per token: layers 0 to 1 and layer 2. Two tokens per block.
GROUP = KvGroup(0, 2, 8, (0, 1, 2), (2, 1), 256)
GREEDY = Sampling(temperature=0.0)
WEIGHTS = WeightDigests({"lm_head": TensorDigest(0xABC, 64)})
HOST = Fingerprint({"driver": "580.159", "engine": "vllm"})

# Prompt 11 12 13 in blocks 5 and 6; the first step emits 14, the second 15.
SCHEDULER = [
    Launch(
        1,
        rows=np.array([0], np.uint32),
        starts=np.array([0], np.uint32),
        counts=np.array([3], np.uint32),
        started=(
            SessionStart(
                0, "chat-1", np.array([11, 12, 13], np.uint32), GREEDY, 0, np.zeros(0, np.uint32)
            ),
        ),
        blocks=(BlockUpdate(0, 0, 0, np.array([5, 6], np.uint32)),),
    ),
    Commit(1, np.array([14], np.uint32)),
    Launch(2, rows=np.array([0], np.uint32), starts=np.array([3], np.uint32)),
    Commit(2, np.array([15], np.uint32)),
]
ROWS = np.array([[0x10, 0x20], [0x11, 0x21], [0x12, 0x22], [0x13, 0x23]], np.uint64)
RANK = [
    WEIGHTS,
    RankStep(1, (KvRows(0, np.array([10, 11, 12], np.uint32), ROWS[:3]),)),
    RankStep(2, (KvRows(0, np.array([13], np.uint32), ROWS[3:]),)),
]


def evidence(*, tokens=(11, 12, 13, 14, 15), computed=4, rows=ROWS) -> StateEvidence:
    scheduler, rank = SchedulerState(), RankState([GROUP])
    for event in SCHEDULER:
        scheduler.apply(event)
    for event in RANK:
        rank.apply(event)
    live = LiveSession(
        row=0,
        session_id="chat-1",
        emitted=len(tokens),
        computed=computed,
        in_flight=0,
        prompt_length=3,
        tokens=np.array(tokens, np.uint32),
        sampling=GREEDY,
        blocks=(BlockUpdate(0, 0, 0, np.array([5, 6], np.uint32)),),
    )
    return StateEvidence(
        incarnation_recorded="life",
        incarnation_found="life",
        sources=(SourceEvidence(SourceKey(SourceKind.SCHEDULER), HOST, HOST, 1, 1),),
        expected=scheduler,
        attested=SchedulerAttestation(2, 2, (live,)),
        ranks=(
            RankEvidence(
                0, rank, RankAttestation(2, (SessionKv(0, "chat-1", 0, 0, rows),), WEIGHTS)
            ),
        ),
        ranks_expected=1,
        newest_step=2,
        late_steps_allowed=2,
    )


def test_clean():
    judgement = judge_state(evidence())
    assert judgement.verdict is Verdict.RESUMED_EXACT
    assert judgement.findings == ()
    assert judgement.compared == Compared(kv_rows=4, tokens=5, tensors=1, names=2)
    assert judgement.sessions == (
        SessionVerdict(
            "chat-1",
            Verdict.RESUMED_EXACT,
            compared=Compared(kv_rows=4, tokens=5),
            emitted_found=5,
            emitted_expected=5,
        ),
    )


def test_one_bit_in_layer_2_of_position_3():
    rows = ROWS.copy()
    rows[3, 1] ^= np.uint64(1 << 63)
    judgement = judge_state(evidence(rows=rows))
    assert judgement.verdict is Verdict.KV_MISMATCH
    assert judgement.sessions[0].findings == (
        Finding(
            Verdict.KV_MISMATCH,
            "1 KV rows of group 0 are not what rank 0 wrote, the first at position 3",
            session_id="chat-1",
            rank=0,
            layers=(2,),
            positions=((3, 4),),
            expected="0000000000000023",
            found="8000000000000023",
            mismatches=1,
        ),
    )


def test_different_layers_at_different_positions_are_told_apart():
    rows = ROWS.copy()
    rows[0:2, 0] = 0
    rows[3, 0] = 0
    rows[2, 1] = 0
    findings = judge_state(evidence(rows=rows)).sessions[0].findings
    assert [(f.layers, f.positions, f.mismatches) for f in findings] == [
        ((0, 1), ((0, 2), (3, 4)), 3),
        ((2,), ((2, 3),), 1),
    ]


def test_one_token_more_than_kv_holds():
    judgement = judge_state(evidence(computed=5))
    assert judgement.verdict is Verdict.POSITION_MISMATCH
    assert judgement.sessions[0].findings == (
        Finding(
            Verdict.POSITION_MISMATCH,
            "computed of the session is not what the record has at this boundary",
            session_id="chat-1",
            expected="emitted 5, computed 4, in_flight 0, prompt_length 3",
            found="emitted 5, computed 5, in_flight 0, prompt_length 3",
            mismatches=1,
        ),
    )
    assert judgement.compared.kv_rows == 0


def test_another_token_in_the_history():
    judgement = judge_state(evidence(tokens=(11, 12, 99, 14, 15)))
    assert judgement.verdict is Verdict.TOKENS_MISMATCH
    assert judgement.sessions[0].findings == (
        Finding(
            Verdict.TOKENS_MISMATCH,
            "token history differs from the record first at position 2",
            session_id="chat-1",
            first_differing_position=2,
            positions=((2, 3),),
            expected="token 13",
            found="token 99",
            mismatches=1,
        ),
    )
