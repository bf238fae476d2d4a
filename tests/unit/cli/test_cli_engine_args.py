import json
import shlex

from engine_adapters.report.config import AdapterConfig
from engine_adapters.vllm import plugin, versions
from sidecar.cli import checks_engine, engine_args


def pasted(text):
    flag, value = shlex.split(text)
    assert flag == "--kv-transfer-config"
    return json.loads(value)


def test_names_are_those_of_the_adapter():
    assert plugin.CONNECTOR == engine_args.VLLM_CONNECTOR
    assert plugin.MODULE == engine_args.VLLM_MODULE
    assert versions.OLDEST == checks_engine.OLDEST_VLLM
    assert versions.NEWEST == checks_engine.NEWEST_VLLM


def test_printed_flags_survive_a_shell_and_the_adapter_reads_them(run):
    result = run(
        *("engine-args", "vllm", "-w", "pool/w0", "--sidecar", "127.0.0.1:5000"),
        *("--engine-url", "http://127.0.0.1:8000"),
    )
    config = pasted(result.stdout)
    assert config["kv_role"] == "kv_producer"
    read = AdapterConfig.load(config["kv_connector_extra_config"], {})
    assert (read.worker, read.address) == ("pool/w0", "127.0.0.1:5000")
    assert read.engine_url == "http://127.0.0.1:8000"


def test_json_has_the_flags_as_arguments(run):
    document = run("engine-args", "vllm", "-w", "w", "--json").json
    assert document["flags"][0] == "--kv-transfer-config"
    assert json.loads(document["flags"][1]) == document["kv_transfer_config"]


def test_without_a_worker_the_adapter_chooses(run):
    extra = pasted(run("engine-args", "vllm").stdout)["kv_connector_extra_config"]
    assert "worker" not in extra


def test_multi_stands_beside_another_connector(run):
    other = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
    config = pasted(run("engine-args", "vllm", "--beside", json.dumps(other)).stdout)
    children = config["kv_connector_extra_config"]["connectors"]
    assert config["kv_connector"] == "MultiConnector"
    assert config["kv_role"] == "kv_both"
    assert [child["kv_connector"] for child in children] == [
        "TokenwitnessConnector",
        "OffloadingConnector",
    ]
    assert children[0]["kv_connector_module_path"] == plugin.MODULE


def test_multi_alone_keeps_the_role_that_changes_least(run):
    config = pasted(run("engine-args", "vllm", "--multi").stdout)
    assert config["kv_role"] == "kv_producer"
    assert len(config["kv_connector_extra_config"]["connectors"]) == 1
