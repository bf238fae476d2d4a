"""One restore from its sign to its verdict, over real streams and a real ledger."""

import pytest

from sidecar.core.verdicts import Verdict
from sidecar.identity import RestoreEvidence
from sidecar.ports import Continuation, WaitFor
from sidecar.verify.evidence import EvidenceReader
from tests.unit.services.waiting import eventually
from tests.unit.verify.scripted_run import HELD, ScriptedEngine, recorded_worker, verifier_of


async def verdict_of(rig, *, wait_for=WaitFor.FINAL, verification=None):
    await eventually(lambda: rig.verifier._newest("w") is not None)
    return await rig.verifier.wait("w", verification, timeout_s=10, wait_for=wait_for)


def gate(rig):
    return rig.services.gates.state("w")


async def restored(rig, **wrong):
    """A worker that was restored, with its memory as recorded but for `wrong`."""
    worker = await recorded_worker(rig)
    await worker.sign()
    await worker.attest(**wrong)
    return worker


async def test_exact_memory_is_released_and_an_equal_continuation_passes(start_verifying):
    engine = ScriptedEngine(tokens=(91, 92, 93, 94))
    rig = await start_verifying(verifier_of(engine))
    worker = await restored(rig)
    release = await worker.scheduler.expect("release")
    assert (release.attest_id, release.verdict, release.go) == (HELD, Verdict.RESUMED_EXACT, True)
    assert (await worker.rank.expect("release")).attest_id == HELD + 1
    assert not gate(rig).open
    await worker.go_on(91, 92, 93, 94)
    verdict = await verdict_of(rig)
    assert verdict.final
    assert verdict.verdict is Verdict.RESUMED_EXACT
    assert verdict.trigger == "process_recreated"
    assert verdict.compared.kv_rows == 6
    assert verdict.compared.tensors == 1
    assert verdict.compared.shadow_tokens == 4
    assert engine.prompts == [(1, 2, 3, 10, 12, 13, 14)]
    assert gate(rig).open


async def test_an_image_of_the_life_before_a_rollback_is_judged_by_its_own_history(start_verifying):
    rig = await start_verifying(verifier_of(None))
    worker = await recorded_worker(rig, steps=8)
    await worker.restore(rig, steps=2, start_ticks=98)
    await worker.attest()
    rolled_back = await verdict_of(rig)
    assert (rolled_back.verdict, rolled_back.generation) == (Verdict.RESUMED_EXACT, 1)
    assert rolled_back.rolled_back_steps == 6
    await worker.go_on(77)
    await worker.scheduler.acked(6)
    # Of before the rollback, and further on than the restored worker ever came.
    await worker.restore(rig, steps=6, start_ticks=99)
    await worker.attest()
    await eventually(lambda: rig.verifier._newest("w").generation == 2)
    verdict = await verdict_of(rig)
    assert (verdict.verdict, verdict.generation) == (Verdict.RESUMED_EXACT, 2)
    assert verdict.rolled_back_steps == 2
    assert verdict.compared.kv_rows == 8
    assert rig.worker().hole_records == 0


async def test_another_continuation_is_diverged_and_the_gate_stays_closed(start_verifying):
    rig = await start_verifying(verifier_of(ScriptedEngine(tokens=(91, 92, 93, 94))))
    worker = await restored(rig)
    await worker.go_on(91, 92, 55, 56)
    verdict = await verdict_of(rig)
    assert verdict.verdict is Verdict.DIVERGED
    assert verdict.state_verdict is Verdict.RESUMED_EXACT
    assert verdict.sessions[0].findings[0].first_differing_position == 9
    assert not gate(rig).open


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"flip": 2}, Verdict.KV_MISMATCH),
        ({"tokens": [1, 2, 9, 10, 12, 13, 14]}, Verdict.TOKENS_MISMATCH),
        ({"computed": 7}, Verdict.POSITION_MISMATCH),
        ({"weight": 78}, Verdict.WEIGHTS_MISMATCH),
        ({"rank_step": 2}, Verdict.RANK_SKEW),
        ({"lost": True}, Verdict.LOST),
    ],
    ids=str,
)
async def test_each_fault_of_memory_is_named_and_closes_the_gate(start_verifying, wrong, expected):
    rig = await start_verifying(verifier_of(ScriptedEngine()))
    worker = await restored(rig, **wrong)
    release = await worker.scheduler.expect("release")
    assert release.verdict == expected
    verdict = await verdict_of(rig)
    assert (verdict.verdict, verdict.state_verdict) == (expected, expected)
    assert expected.name in gate(rig).reason


async def test_a_kv_mismatch_names_rank_layer_and_position(start_verifying):
    rig = await start_verifying(verifier_of(None))
    await restored(rig, flip=2)
    (finding,) = (await verdict_of(rig)).sessions[0].findings
    assert (finding.rank, finding.layers, finding.positions) == (0, (1,), ((2, 3),))


async def test_on_a_fault_a_closed_policy_keeps_the_worker_held(start_verifying):
    rig = await start_verifying(verifier_of(None, release_on_fault=False))
    worker = await restored(rig, flip=2)
    release = await worker.rank.expect("release")
    assert (release.verdict, release.go) == (Verdict.KV_MISMATCH, False)


async def test_a_source_that_does_not_attest_makes_it_incomparable_and_releases(start_verifying):
    rig = await start_verifying(verifier_of(None))
    worker = await recorded_worker(rig)
    await worker.sign()
    verdict = await verdict_of(rig)
    assert verdict.verdict is Verdict.INCOMPARABLE
    assert not gate(rig).open
    assert (await worker.rank.expect("release")).go


async def test_no_continuation_within_the_deadline_is_a_timeout_not_a_pass(start_verifying):
    rig = await start_verifying(verifier_of(ScriptedEngine(), deadline_s=1.5))
    await restored(rig)
    verdict = await verdict_of(rig)
    assert verdict.verdict in {Verdict.TIMEOUT, Verdict.INCOMPARABLE}
    assert not gate(rig).open


async def test_a_hook_claims_the_verification_of_the_sign_and_judges_its_window(start_verifying):
    rig = await start_verifying(verifier_of(None))
    worker = await recorded_worker(rig, steps=8)
    mark = made_mark(step=2, last_step=2)
    await worker.sign()
    await worker.attest()
    by_sign = await verdict_of(rig)
    assert by_sign.verdict is Verdict.RESUMED_EXACT
    claimed = rig.verifier.start(
        rig.worker(),
        RestoreEvidence.HOOK,
        mark=mark,
        deadline_s=5,
        continuation=Continuation.REPLAY,
    )
    assert claimed == by_sign.verification_id
    # The worker stands at step 8, four late steps beyond 2 are allowed: another image.
    again = await verdict_of(rig, verification=claimed)
    assert again.verdict is Verdict.POSITION_MISMATCH
    assert not gate(rig).open


async def test_a_hook_that_comes_while_evidence_is_read_is_judged_too(start_verifying, monkeypatch):
    rig = await start_verifying(verifier_of(None))
    worker = await recorded_worker(rig, steps=8)
    read = EvidenceReader.read

    def read_and_be_claimed(self, seen, attested, mark):
        evidence = read(self, seen, attested, mark)
        rig.verifier._newest("w").mark = made_mark(step=2, last_step=2)
        return evidence

    monkeypatch.setattr(EvidenceReader, "read", read_and_be_claimed)
    await worker.sign()
    await worker.attest()
    assert (await verdict_of(rig)).verdict is Verdict.POSITION_MISMATCH


async def test_a_hook_before_the_sign_waits_for_the_restore(start_verifying):
    rig = await start_verifying(verifier_of(None))
    worker = await recorded_worker(rig)
    started = rig.verifier.start(
        rig.worker(), RestoreEvidence.HOOK, mark=None, deadline_s=8, continuation=Continuation.SKIP
    )
    await worker.scheduler.expect("attest")
    await worker.sign()
    await worker.attest()
    verdict = await verdict_of(rig, verification=started)
    assert (verdict.verdict, verdict.trigger) == (Verdict.RESUMED_EXACT, "hook")
    assert verdict.generation == 1


async def test_a_hook_without_a_sign_judges_the_worker_where_it_stands_now(start_verifying):
    """A driver's checkpoint stops only calls into the device: the process shows nothing, and
    has left the mark's steps when it is asked.
    """
    rig = await start_verifying(verifier_of(None))
    worker = await recorded_worker(rig)
    mark = made_mark(step=1, last_step=1)
    started = rig.verifier.start(
        rig.worker(), RestoreEvidence.HOOK, mark=mark, deadline_s=8, continuation=Continuation.SKIP
    )
    ids = [(await source.expect("attest")).attest_id for source in (worker.scheduler, worker.rank)]
    await worker.attest((ids[0], ids[1]))
    verdict = await verdict_of(rig, verification=started)
    assert (verdict.verdict, verdict.mark) == (Verdict.RESUMED_EXACT, "m")
    assert verdict.generation == 0


async def test_an_operators_check_compares_now_and_does_not_close_on_doubt(start_verifying):
    rig = await start_verifying(verifier_of(None))
    worker = await recorded_worker(rig)
    started = rig.verifier.start(
        rig.worker(),
        RestoreEvidence.OPERATOR,
        mark=None,
        deadline_s=8,
        continuation=Continuation.SKIP,
    )
    ids = [(await source.expect("attest")).attest_id for source in (worker.scheduler, worker.rank)]
    await worker.attest((ids[0], ids[1]))
    assert (await verdict_of(rig, verification=started)).verdict is Verdict.RESUMED_EXACT
    silent = rig.verifier.start(
        rig.worker(),
        RestoreEvidence.OPERATOR,
        mark=None,
        deadline_s=8,
        continuation=Continuation.SKIP,
    )
    assert (await verdict_of(rig, verification=silent)).verdict is Verdict.INCOMPARABLE
    assert gate(rig).open


async def test_a_new_life_with_sessions_left_behind_is_restarted_and_may_serve(start_verifying):
    rig = await start_verifying(verifier_of(None), heartbeat_timeout_ms=300)
    worker = await recorded_worker(rig)
    await worker.scheduler.hang_up()
    await worker.rank.hang_up()
    await new_life(rig)
    verdict = await verdict_of(rig)
    assert (verdict.verdict, verdict.trigger) == (Verdict.RESTARTED, "restarted")
    assert [session.session_id for session in verdict.sessions] == ["s"]
    await eventually(lambda: gate(rig).open)


async def new_life(rig):
    from tests.unit.services.scripted import Script

    async def attached(script):
        try:
            await rig.workers.attach(script)
        except AssertionError:
            return False
        return True

    for script in (
        Script(incarnation="life-2", nonce=17),
        Script(incarnation="life-2", nonce=18, rank=0),
    ):
        for _ in range(100):
            if await attached(script):
                break
        else:
            raise AssertionError("the new life was never let in")


def made_mark(*, step, last_step):
    from sidecar.ledger.values import Mark, MarkOutcome

    return Mark(
        name="m",
        worker="w",
        incarnation="life-1",
        generation=0,
        step=step,
        sessions=1,
        made_unix_ns=1,
        outcome=MarkOutcome.TAKEN,
        last_step=last_step,
    )
