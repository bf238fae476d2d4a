"""Who takes an attestation, and when something counts as arrived."""

from engine_adapters.report.attestations import Origin
from engine_adapters.report.delivery import SETTLED_S, Delivery
from engine_adapters.report.duties import MOST_REQUESTS, Duties, Release, sign_attest_id


def asked(*ids: int) -> Duties:
    duties = Duties(idle_after_s=1)
    for attest_id in ids:
        assert duties.request(attest_id, weights=False, limit_s=10, now=0)
    return duties


def test_what_the_engine_took_cannot_be_finished_idle_whatever_else_waits():
    duties = asked(1, 2)
    reading = duties.idle_begin(1)
    assert reading.attest_id == 1
    assert duties.take() == reading
    assert not duties.idle_end(reading)
    assert duties.take().attest_id == 2


def test_one_is_read_idle_at_a_time_and_not_too_early():
    duties = asked(1, 2)
    assert duties.idle_begin(0.9) is None
    first = duties.idle_begin(1)
    assert duties.idle_begin(5) is None
    assert duties.idle_end(first)
    assert duties.idle_begin(5).attest_id == 2


def test_what_could_not_be_read_waits_its_time_again():
    duties = asked(1)
    duties.idle_later(duties.idle_begin(1), now=1)
    assert duties.idle_begin(1.5) is None
    assert duties.idle_begin(2) is not None


def test_a_sign_goes_before_requests_and_takes_the_place_of_an_earlier_one():
    duties = asked(1)
    first, second = sign_attest_id(), sign_attest_id()
    duties.sign(first, hold=True, now=0)
    duties.sign(second, hold=True, now=0)
    assert duties.holding_for == second
    assert [duties.take().origin for _ in range(2)] == [Origin.SIGN, Origin.REQUEST]
    assert duties.take() is None
    assert not duties.attention


def test_a_release_counts_only_for_its_own_hold():
    duties = Duties(1)
    attest_id = sign_attest_id()
    duties.sign(attest_id, hold=True, now=0)
    duties.released(attest_id ^ 1, go=True)
    assert duties.hold_state(attest_id) is Release.NONE
    duties.released(attest_id, go=False)
    assert duties.hold_state(attest_id) is Release.STAY
    duties.released(attest_id, go=True)
    assert duties.hold_state(attest_id) is Release.GO
    assert duties.hold_state(attest_id ^ 1) is None


def test_requests_are_bounded_and_expire():
    duties = asked(*range(1, MOST_REQUESTS + 1))
    assert not duties.request(99, weights=False, limit_s=10, now=0)
    assert duties.request(1, weights=False, limit_s=10, now=0), "asked twice is asked once"
    assert len(duties.expired(10)) == MOST_REQUESTS
    assert not duties.attention


def test_only_an_acknowledgement_of_what_was_sent_later_on_the_same_stream_is_proof():
    delivery = Delivery()
    delivery.sent(stream=2, proof_seq=10, now=0)
    delivery.acked(2, 9)
    delivery.acked(1, 50)
    assert not delivery.arrived
    delivery.acked(2, 10)
    assert delivery.arrived


def test_what_was_sent_on_a_stream_that_lived_on_has_arrived():
    delivery = Delivery()
    delivery.sent(stream=2, proof_seq=10, now=0)
    delivery.settle(2, SETTLED_S)
    delivery.settle(3, 10 * SETTLED_S)
    assert not delivery.arrived
    delivery.settle(2, SETTLED_S + 1)
    assert delivery.arrived
