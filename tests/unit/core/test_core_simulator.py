"""The simulated engine itself: random schedules must reach what the laws are about."""

from engine_simulator import Engine, next_token
from hypothesis import given
from schedules import ENGINES, LAW, SCHEDULES, act, play

from sidecar.core.events import Commit, Launch

MANY = [
    ("add", 9), ("add", 20), ("step", 0), ("draft", 3), ("draft", 3), ("add", 12), ("step", 0),
    ("draft", 2), ("draft", 2), ("preempt", 0), ("step", 0), ("abort", 1), ("add", 3),
    ("step", 0), ("draft", 3), ("draft", 3), ("step", 0), ("preempt", 1), ("draft", 3),
    ("step", 0), ("step", 0), ("add", 12), ("abort", 0), ("step", 0), ("step", 0), ("add", 1),
    ("step", 0), ("step", 0), ("step", 0), ("step", 0), ("step", 0),
]  # fmt: skip


def test_one_long_schedule_reaches_every_kind_of_event():
    engine = Engine(ranks=1, depth=1)
    for action, number in MANY:
        act(engine, action, number)
    launches = [each for each in engine.scheduler_log if isinstance(each, Launch)]
    commits = [each for each in engine.scheduler_log if isinstance(each, Commit)]
    assert any(each.ended for each in launches), "abort"
    assert any(each.ended for each in commits), "finish"
    assert any(each.preempted_rows for each in launches), "preemption"
    assert any(each.drafts is not None for each in launches), "drafts"
    assert any(each.rejected is not None for each in commits), "rejects"
    assert any(each.counts is None and len(each.rows) for each in launches), "plain decode"
    assert any(each.token_counts is not None for each in commits), "outcome without a token"
    rows = [start.row for each in launches for start in each.started]
    assert len(set(rows)) < len(rows), "a row that is used again"
    first = {start.row for each in launches for start in each.started}
    assert any(
        start > 0
        for each in launches
        for row, start in zip(each.rows.tolist(), each.starts.tolist(), strict=True)
        if row in {begun.row for begun in each.started} & first
    ), "a hit in the prefix cache"


@LAW
@given(ENGINES, SCHEDULES)
def test_no_schedule_changes_a_token(shape, schedule):
    for request in play(shape, schedule).requests:
        tokens = list(request.prompt)
        while len(tokens) < len(request.tokens):
            tokens.append(next_token(tokens))
        assert request.tokens == tokens
