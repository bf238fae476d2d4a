from sidecar.shadow.request_ids import PREFIX, ShadowIds
from sidecar.shadow.results import ShadowResult
from sidecar.shadow.settings import ShadowMode


def result(**change):
    fields = {
        "session_id": "a",
        "mode": ShadowMode.INDEPENDENT,
        "tokens": (1, 2, 3),
        "top": ({1: -0.5, 9: -0.51}, {2: -0.5, 9: -3.5}, {3: -0.1}),
        "plain_greedy": True,
    }
    return ShadowResult(**(fields | change))


def test_margin_is_best_less_second():
    first, second, third = result().margins()
    assert abs(first - 0.01) < 1e-9
    assert second == 3.0
    assert third is None


def test_near_tie_of_two_tokens_does_not_excuse_a_third():
    assert result().margins_against((8, 2))[0] == float("inf")


def test_found_token_of_the_tie_has_its_own_distance():
    assert abs(result().margins_against((9,))[0] - 0.01) < 1e-9
    assert result().margins_against((1, 9))[1] == 3.0


def test_log_probabilities_say_nothing_about_sampled_tokens():
    assert result(plain_greedy=False).margins_against((9, 9, 9)) == (None, None, None)


def test_ids_are_known_by_their_key_alone():
    ids = ShadowIds()
    name = ids.new()
    assert name.startswith(PREFIX)
    assert ids.is_shadow(name)
    assert ids.is_shadow(f"cmpl-{name}-0-deadbeef")
    assert not ShadowIds().is_shadow(name)
    assert ShadowIds(ids.key).is_shadow(name)


def test_user_cannot_hide_a_session_behind_the_prefix():
    ids = ShadowIds()
    assert not ids.is_shadow(PREFIX + "x")
    assert not ids.is_shadow(f"cmpl-{PREFIX}{'0' * 16}-{'0' * 16}-0")
    name = ids.new()
    forged = name[:-1] + ("0" if name[-1] != "0" else "1")
    assert not ids.is_shadow(forged)


def test_ids_do_not_repeat():
    ids = ShadowIds()
    assert len({ids.new() for _ in range(1000)}) == 1000
