"""The sidecar's settings: a flag over the environment over a TOML file over the default.

Every setting is one flat name, so that the flag (``--hold-mode``), the variable
(``TOKENWITNESS_HOLD_MODE``) and the file's key (``hold_mode``) are the same word.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from sidecar.config_types import (
    Address,
    Exactness,
    HoldFail,
    HoldMode,
    LogFormat,
    LogLevel,
    Milliseconds,
    is_loopback,
    split_address,
    words,
)
from sidecar.shadow.settings import SeededReplay, ShadowMode

ENV_PREFIX = "TOKENWITNESS_"
# The one variable that is not a setting: where the file of settings is.
CONFIG_FILE_VARIABLE = "TOKENWITNESS_CONFIG"


class SettingsError(Exception):
    """A setting that cannot be used. The text names the setting, its value and the remedy."""


class Settings(BaseSettings):
    """All settings of the sidecar. Immutable once read."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, validate_default=True
    )

    grpc_address: Address = Field(
        "127.0.0.1:9747",
        description="Where adapters, orchestrators and operators connect (gRPC). "
        "Port 0 takes a free one.",
    )
    http_address: Address = Field(
        "127.0.0.1:9748",
        description="Where /healthz, /readyz and /metrics are served (HTTP). Port 0 takes a "
        "free one.",
    )
    allow_non_loopback: bool = Field(
        False,
        description="Listen on addresses that other machines can reach. There is no "
        "authentication: whoever reaches the port can read tokens and release a held worker.",
    )
    ledger_path: Path = Field(
        Path("tokenwitness.ledger"), description="The ledger's file (SQLite)."
    )
    log_format: LogFormat = Field(
        LogFormat.AUTO,
        description="`json` for machines, `console` for people; `auto` is `console` on a terminal.",
    )
    log_level: LogLevel = Field(LogLevel.INFO, description="The least severe line written.")

    hold_mode: HoldMode = Field(
        HoldMode.VERDICT,
        description="`verdict`: the first step after a restore waits for the verdict on memory; "
        "`none`: it goes on meanwhile.",
    )
    hold_deadline_ms: Milliseconds = Field(
        30_000, description="How long a held step waits for its release, milliseconds."
    )
    hold_fail: HoldFail = Field(
        HoldFail.OPEN,
        description="At the hold's deadline go on (`open`) or stay held until "
        "`hold_closed_limit_ms` (`closed`).",
    )
    hold_closed_limit_ms: Milliseconds = Field(
        300_000,
        description="Longest that a step stays held when `hold_fail` is `closed`, milliseconds.",
    )
    suspect_after_ms: Milliseconds = Field(
        2_000,
        description="A process that stood still for longer was perhaps restored, milliseconds.",
    )
    attestation_deadline_ms: Milliseconds = Field(
        20_000, description="How long all sources may take to attest, milliseconds."
    )
    verification_deadline_ms: Milliseconds = Field(
        120_000,
        description="How long one verification may take, continuation included, milliseconds.",
    )
    join_window_ms: Milliseconds = Field(
        20_000,
        description="Signs of other sources of a worker that come within this time of the "
        "first belong to the same restore, milliseconds.",
    )
    late_steps_allowed: int = Field(
        4,
        ge=0,
        le=64,
        description="Steps whose records arrived only after the restore and are compared all "
        "the same: those in progress (two with asynchronous scheduling) and those still in the "
        "adapter's queue. More of them make the verdict INCOMPARABLE.",
    )

    shadow_modes: Annotated[list[ShadowMode], NoDecode, BeforeValidator(words)] = Field(
        [ShadowMode.INDEPENDENT],
        description="Replays of the continuation, in this order; between commas. Empty: none.",
    )
    shadow_k: int = Field(32, ge=1, le=4096, description="Tokens replayed for each chosen session.")
    shadow_concurrency: int = Field(
        2, ge=1, le=64, description="Replays that run at once on the worker under test."
    )
    shadow_max_sessions: int = Field(
        16, ge=0, le=4096, description="Sessions replayed in one verification."
    )
    shadow_token_budget: int = Field(
        65_536,
        ge=0,
        le=100_000_000,
        description="Tokens, prompts included, that one verification may replay.",
    )
    shadow_seeded_replay: SeededReplay = Field(
        SeededReplay.FROM_PROMPT,
        description="Where the replay of a seeded session starts: `from_prompt` is right on "
        "every engine, `from_position` only where noise is a function of seed and position.",
    )
    shadow_engine_url: str | None = Field(
        None,
        description="Engine that replays, instead of the address that the adapter gave.",
        pattern=r"^https?://[^\s]+$",
    )
    shadow_near_tie_margin: float = Field(
        0.05,
        ge=0.0,
        le=10.0,
        description="On a `noisy` engine a first difference where the two best tokens are "
        "closer than this (log-probability) is a near-tie, neither a pass nor a divergence.",
    )
    shadow_exactness: Exactness = Field(
        Exactness.NOISY,
        description="`exact`: the engine is batch invariant and any difference counts; "
        "`noisy`: near-ties are weighed by `shadow_near_tie_margin`.",
    )

    heartbeat_timeout_ms: Milliseconds = Field(
        4_000,
        description="A source silent for longer counts as gone, milliseconds. Adapters send a "
        "heartbeat each second and wait 5 s for an answer to their first message.",
    )
    silent_close_ms: Milliseconds = Field(
        3_600_000,
        description="A stream silent for longer is closed, milliseconds. Long, because a frozen "
        "worker's stream may go on after its restore.",
    )
    max_workers: int = Field(64, ge=1, le=10_000, description="Workers attached at once.")
    max_ranks: int = Field(64, ge=1, le=4096, description="Ranks that one worker may have.")
    max_message_bytes: int = Field(
        4 * 1024 * 1024,
        ge=2 * 1024 * 1024,
        le=256 * 1024 * 1024,
        description="Largest message accepted, bytes. A part of an attestation needs 1 MiB.",
    )
    max_unacked_bytes: int = Field(
        16 * 1024 * 1024,
        ge=1024,
        le=1024 * 1024 * 1024,
        description="Bytes of one source that may wait to become durable before its stream is "
        "read no further.",
    )
    watchers_limit: int = Field(32, ge=1, le=4096, description="Watch streams open at once.")
    watcher_queue: int = Field(
        1024, ge=1, le=100_000, description="Events kept for a watcher that does not keep up."
    )
    retention_hours: float = Field(
        168.0, gt=0, le=87_600, description="Records older than this are dropped, hours."
    )
    retention_bytes: int = Field(
        8 * 1024**3,
        ge=16 * 1024**2,
        le=1024**5,
        description="The ledger is kept below this, oldest and finished sessions first, bytes.",
    )
    retention_marks: int = Field(
        16, ge=1, le=10_000, description="Newest marks of a worker whose records are kept."
    )
    drain_grace_ms: Milliseconds = Field(
        10_000,
        description="After SIGTERM, how long streams and the ledger may take to finish, "
        "milliseconds.",
    )

    @model_validator(mode="after")
    def _refuse_exposure(self) -> "Settings":
        for name in ("grpc_address", "http_address"):
            address: str = getattr(self, name)
            if not self.allow_non_loopback and not is_loopback(split_address(address)[0]):
                raise ValueError(
                    f"{name} {address!r} can be reached from other machines and nothing "
                    "authenticates them; listen on 127.0.0.1 or set allow_non_loopback"
                )
        if self.hold_closed_limit_ms < self.hold_deadline_ms:
            raise ValueError(
                f"hold_closed_limit_ms {self.hold_closed_limit_ms} is below hold_deadline_ms "
                f"{self.hold_deadline_ms}; make it at least as long"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        file = cls.model_config.get("toml_file")
        if file is None:
            return init_settings, env_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(
    flags: Mapping[str, object] | None = None, *, config_file: Path | None = None
) -> Settings:
    """Settings from the command line, the environment and a file, in this order of rank.

    `flags` are the given ones by setting name; None as a value means "not given".
    `config_file` defaults to what ``TOKENWITNESS_CONFIG`` names; without both no file is read.

    Raises:
        SettingsError: a file that is missing or not TOML, an unknown or malformed setting.

    """
    if config_file is None and (named := os.environ.get(CONFIG_FILE_VARIABLE)):
        config_file = Path(named)
    if config_file is not None and not config_file.is_file():
        raise SettingsError(f"configuration file {str(config_file)!r} does not exist")
    chosen = config_file

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=chosen)

    given = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        read = FromFile(**given)  # type: ignore[arg-type]  # validated by pydantic
    except ValidationError as error:
        raise SettingsError("; ".join(map(_explain, error.errors()))) from error
    except ValueError as error:  # TOML syntax
        raise SettingsError(f"configuration file {str(config_file)!r}: {error}") from error
    return read


def _explain(error: Any) -> str:
    name = ".".join(map(str, error["loc"]))
    message = str(error["msg"]).removeprefix("Value error, ")
    if not name:
        return message
    return f"{name} {error['input']!r}: {message}"
