"""Settings: where they come from, what is refused and with which words."""

from pathlib import Path

import pytest

from sidecar.config import CONFIG_FILE_VARIABLE, ENV_PREFIX, Settings, SettingsError, load_settings
from sidecar.config_table import page, settings_table
from sidecar.config_types import HoldMode, split_address
from sidecar.shadow.settings import ShadowMode

ROOT = Path(__file__).parents[3]


def test_a_flag_ranks_over_the_environment_over_the_file_over_the_default(tmp_path, monkeypatch):
    file = tmp_path / "sidecar.toml"
    file.write_text('hold_mode = "none"\nshadow_k = 5\nwatchers_limit = 6\n')
    monkeypatch.setenv(CONFIG_FILE_VARIABLE, str(file))
    monkeypatch.setenv("TOKENWITNESS_SHADOW_K", "7")
    monkeypatch.setenv("TOKENWITNESS_WATCHERS_LIMIT", "8")
    settings = load_settings({"watchers_limit": 9, "shadow_concurrency": None})
    assert settings.hold_mode is HoldMode.NONE
    assert settings.shadow_k == 7
    assert settings.watchers_limit == 9
    assert settings.shadow_concurrency == Settings.model_fields["shadow_concurrency"].default
    monkeypatch.delenv(CONFIG_FILE_VARIABLE)
    assert load_settings().hold_mode is HoldMode.VERDICT
    assert load_settings(config_file=file).hold_mode is HoldMode.NONE


def test_lists_are_words_between_commas_or_a_list_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENWITNESS_SHADOW_MODES", "cached, forced")
    assert load_settings().shadow_modes == [ShadowMode.CACHED, ShadowMode.FORCED]
    assert load_settings({"shadow_modes": ""}).shadow_modes == []
    monkeypatch.delenv("TOKENWITNESS_SHADOW_MODES")
    file = tmp_path / "sidecar.toml"
    file.write_text('shadow_modes = ["forced"]\n')
    assert load_settings(config_file=file).shadow_modes == [ShadowMode.FORCED]


@pytest.mark.parametrize("name", ["grpc_address", "http_address"])
@pytest.mark.parametrize("address", ["0.0.0.0:9747", "[::]:1", "10.0.0.1:1", "example.org:1"])
def test_an_exposed_address_needs_to_be_meant(name, address):
    with pytest.raises(SettingsError, match="allow_non_loopback") as caught:
        load_settings({name: address})
    assert address in str(caught.value)
    assert getattr(load_settings({name: address, "allow_non_loopback": True}), name) == address


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1"])
def test_loopback_addresses_are_fine(address):
    assert load_settings({"grpc_address": address}).grpc_address == address


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"grpc_address": "9747"}, ["grpc_address", "9747", "host:port"]),
        ({"grpc_address": "127.0.0.1:70000"}, ["grpc_address", "70000"]),
        ({"shadow_k": 0}, ["shadow_k", "0"]),
        ({"shadow_k": "many"}, ["shadow_k", "many"]),
        ({"hold_mode": "maybe"}, ["hold_mode", "maybe"]),
        ({"shadow_modes": "cached,wrong"}, ["shadow_modes", "wrong"]),
        ({"shadow_engine_url": "ftp://x"}, ["shadow_engine_url", "ftp://x"]),
        ({"max_message_bytes": 1000}, ["max_message_bytes", "1000"]),
        ({"no_such_setting": 1}, ["no_such_setting"]),
        (
            {"hold_deadline_ms": 2000, "hold_closed_limit_ms": 1000},
            ["hold_closed_limit_ms", "1000", "2000"],
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_its_value(flags, words):
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_bad_file_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        load_settings(config_file=tmp_path / "missing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("hold_mode = \n")
    with pytest.raises(SettingsError, match=r"broken\.toml"):
        load_settings(config_file=broken)
    unknown = tmp_path / "unknown.toml"
    unknown.write_text("hold_moode = 1\n")
    with pytest.raises(SettingsError, match="hold_moode"):
        load_settings(config_file=unknown)


def test_every_setting_is_documented_and_every_number_bounded():
    table = settings_table()
    properties = Settings.model_json_schema()["properties"]
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert f"`{ENV_PREFIX}{name.upper()}`" in table
        if properties[name].get("type") in ("integer", "number"):
            assert "maximum" in properties[name], name
            assert {"minimum", "exclusiveMinimum"} & set(properties[name]), name


def test_the_documentation_is_current():
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == page(), "run: python -m sidecar.config_table docs/configuration.md"


def test_addresses_are_split():
    assert split_address("[::1]:80") == ("::1", 80)
    assert split_address("localhost:0") == ("localhost", 0)
    for bad in ("", ":", "host", "host:", ":80", "host:-1", "host:65536", "host:x"):
        with pytest.raises(ValueError, match="host:port"):
            split_address(bad)
