"""A hole makes the record incomparable, until the worker's memory is taken as a new start."""

from tokenwitness.v1 import recorder_pb2 as pb

from sidecar.core.verdicts import Verdict
from sidecar.identity import RestoreEvidence
from sidecar.ports import Continuation, WaitFor
from tests.unit.services.waiting import eventually
from tests.unit.verify.scripted_run import recorded_worker, verifier_of


async def check(rig, worker, **wrong):
    """An operator's check that both sources answer."""
    started = rig.verifier.start(
        rig.worker(),
        RestoreEvidence.OPERATOR,
        mark=None,
        deadline_s=8,
        continuation=Continuation.SKIP,
    )
    await answer(worker, **wrong)
    return await rig.verifier.wait("w", started, timeout_s=8, wait_for=WaitFor.FINAL)


async def answer(worker, **wrong):
    ids = [(await source.expect("attest")).attest_id for source in (worker.scheduler, worker.rank)]
    await worker.attest((ids[0], ids[1]), **wrong)


async def with_hole(rig):
    """A worker of whose ranks' and scheduler's records two steps are missing."""
    worker = await recorded_worker(rig)
    await worker.scheduler.records(
        pb.Record(
            seq=worker.next_seq,
            hole=pb.Hole(count=4, first_step=5, last_step=6, reason="the queue was full"),
        )
    )
    await worker.rank.records(
        pb.Record(
            seq=worker.rank_seq,
            hole=pb.Hole(count=2, first_step=5, last_step=6, reason="the queue was full"),
        )
    )
    await worker.scheduler.acked(worker.next_seq + 3)
    await worker.rank.acked(worker.rank_seq + 1)
    worker.steps, worker.next_seq, worker.rank_seq = 6, worker.next_seq + 4, worker.rank_seq + 2
    return worker


async def step_after_the_hole(worker):
    """Step 7 is recorded whole by both sources."""
    await worker.go_on(17)
    await worker.rank.records(
        pb.Record(
            seq=worker.rank_seq,
            rank_step=pb.RankStep(
                step=7, kv=[pb.KvRows(kv_group=0, slots=[12], digests=bytes(16))]
            ),
        )
    )
    await worker.scheduler.acked(worker.next_seq - 1)
    await worker.rank.acked(worker.rank_seq)


async def test_a_hole_is_mended_by_a_baseline_and_later_checks_compare_again(start_verifying):
    rig = await start_verifying(verifier_of(None))
    worker = await with_hole(rig)
    await step_after_the_hole(worker)
    assert rig.worker().live.unknown
    # The sidecar asks by itself.
    await answer(worker)
    await eventually(lambda: not rig.worker().live.unknown)
    source = rig.worker().scheduler
    ledger = rig.services.host.ledger

    def mended():
        return ledger.newest_state(source.source_id, source.generation).broken is None

    await eventually(mended)
    verdict = await check(rig, worker)
    assert verdict.verdict is Verdict.RESUMED_EXACT, verdict
    assert verdict.compared.kv_rows == 9


async def test_after_the_baseline_a_changed_row_is_found(start_verifying):
    rig = await start_verifying(verifier_of(None))
    worker = await with_hole(rig)
    await step_after_the_hole(worker)
    await answer(worker)
    await eventually(lambda: not rig.worker().live.unknown)
    source = rig.worker().scheduler
    ledger = rig.services.host.ledger
    await eventually(
        lambda: ledger.newest_state(source.source_id, source.generation).broken is None
    )
    assert (await check(rig, worker, flip=3)).verdict is Verdict.KV_MISMATCH
