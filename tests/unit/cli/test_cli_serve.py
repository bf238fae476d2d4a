import json

import pytest

from sidecar.config import Settings

FILE = 'shadow_k = 7\nhold_mode = "none"\ngrpc_address = "127.0.0.1:1111"\n'


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tokenwitness.toml"
    path.write_text(FILE)
    return path


def test_default_file_environment_and_flag_rank_in_this_order(run, config):
    def settings(*flags, env=None):
        return run("serve", "--check", "--json", *flags, env=env).json

    env = {"TOKENWITNESS_SHADOW_K": "8"}
    file = ("--config", config)
    assert settings()["shadow_k"] == Settings.model_fields["shadow_k"].default
    assert settings(*file)["shadow_k"] == 7
    assert settings(*file, env=env)["shadow_k"] == 8
    assert settings(*file, "--shadow-k", "9", env=env)["shadow_k"] == 9
    assert settings(*file)["hold_mode"] == "none"


def test_file_may_be_named_by_the_environment(run, config):
    result = run("serve", "--check", "--json", env={"TOKENWITNESS_CONFIG": str(config)})
    assert result.json["shadow_k"] == 7


def test_every_setting_has_a_flag(run):
    shown = run("serve", "--help", env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"}).stdout
    for name in Settings.model_fields:
        assert "--" + name.replace("_", "-") in shown


def test_switch_has_both_words(run):
    exposed = ("--grpc-address", "0.0.0.0:9747")
    assert run("serve", "--check", *exposed).exit_code == 2
    assert run("serve", "--check", *exposed, "--allow-non-loopback").exit_code == 0
    assert run("serve", "--check", *exposed, "--no-allow-non-loopback").exit_code == 2


def test_json_is_for_the_log_too_unless_told_otherwise(run):
    assert run("serve", "--check", "--json").json["log_format"] == "json"
    flags = ("--json", "--log-format", "console")
    assert run("serve", "--check", *flags).json["log_format"] == "console"


def test_bad_setting_is_named_with_its_value(run):
    result = run("serve", "--check", "--json", "--hold-mode", "sometimes")
    assert result.exit_code == 2
    message = json.loads(result.stdout)["error"]["message"]
    assert "hold_mode" in message
    assert "sometimes" in message


def test_missing_file_is_a_usage_error(run, tmp_path):
    result = run("serve", "--check", "--config", tmp_path / "none.toml")
    assert result.exit_code == 2
    assert "none.toml" in result.stderr
