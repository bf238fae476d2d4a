"""Entry point `vllm.general_plugins`: loaded in the front end, the engine core, every worker."""

import logging
import os

from engine_adapters.report.log import log_once, never_raises

CONNECTOR = "TokenwitnessConnector"
MODULE = "engine_adapters.vllm.connector"
CPU_EXACT = "TOKENWITNESS_CPU_EXACT"


@never_raises(None)
def register() -> None:
    """Makes the connector known by its name; makes the CPU engine exact where asked to.

    May be called several times in one process.
    """
    _register_connector()
    if os.environ.get(CPU_EXACT) == "1":
        from engine_adapters.vllm import exact_cpu  # noqa: PLC0415 - only where asked for

        exact_cpu.install()


def _register_connector() -> None:
    from vllm.distributed.kv_transfer.kv_connector.factory import (  # noqa: PLC0415 - engine
        KVConnectorFactory,
    )

    try:
        KVConnectorFactory.register_connector(CONNECTOR, MODULE, CONNECTOR)
    except ValueError:
        # Registered already: plugins are loaded again in some processes.
        log_once("registered-twice", f"{CONNECTOR} was registered before", level=logging.DEBUG)
