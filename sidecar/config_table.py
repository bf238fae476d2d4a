"""The documentation of the settings, written from the settings themselves.

``python -m sidecar.config_table docs/configuration.md`` writes the page.
"""

import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from sidecar.config import CONFIG_FILE_VARIABLE, ENV_PREFIX, Settings

_INTRODUCTION = f"""# Configuration

<!-- Written by `python -m sidecar.config_table docs/configuration.md`; do not edit. -->

A flag of `tokenwitness serve` (`--hold-mode none`) ranks over the environment
(`TOKENWITNESS_HOLD_MODE=none`), that over a TOML file (`hold_mode = "none"`), that over the
default. The file is the one that `--config` or `{CONFIG_FILE_VARIABLE}` names. What cannot be
used stops the start with a message that names the setting and its value.

"""


def page() -> str:
    """The whole page."""
    return _INTRODUCTION + settings_table()


def settings_table() -> str:
    """The Markdown table of all settings, in their order here."""
    document = Settings.model_json_schema()
    definitions = document["$defs"]
    lines = ["| Setting | Environment | Default | Allowed | Meaning |", "|---|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        schema = document["properties"][name]
        lines.append(
            f"| `{name}` | `{ENV_PREFIX}{name.upper()}` | {_default(field.default)} "
            f"| {_allowed(schema, definitions)} | {field.description} |"
        )
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return "`" + ",".join(str(word.value) for word in value) + "`"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _allowed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if reference := schema.get("items", schema).get("$ref"):
        return ", ".join(f"`{word}`" for word in definitions[reference.split("/")[-1]]["enum"])
    if "maximum" in schema:
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        above = "above " if "exclusiveMinimum" in schema else ""
        return f"{above}{low} to {schema['maximum']}"
    if schema.get("type") == "boolean":
        return "`true`, `false`"
    return ""


def main() -> None:
    """Writes the page to the path that is the only argument."""
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
