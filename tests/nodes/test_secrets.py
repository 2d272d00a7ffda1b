"""Tests of secrets by reference on two hosts: each host resolves its own secrets, and no log has them."""

import json
import sys
from hashlib import sha256
from secrets import token_hex

import pytest

pytestmark = pytest.mark.slow

JOB = """
import hashlib, json, os, ray
variables = {"MLCL_REFERENCES": json.dumps({"HF_TOKEN": {"env": "LAB_TOKEN"},
                                            "MLFLOW_TRACKING_PASSWORD": {"file": "/on/the/head/alone"}})}
ray.init(address=os.environ["RAY_ADDRESS"], runtime_env={"env_vars": variables}, log_to_driver=False)

@ray.remote(num_cpus=1)
def token():
    from mlcl.service.ray.references import resolve_references
    resolve_references(worker=True)
    return hashlib.sha256(os.environ["HF_TOKEN"].encode()).hexdigest(), ray.util.get_node_ip_address()

print(json.dumps(ray.get([token.options(scheduling_strategy="SPREAD").remote() for _ in range(2)])))
"""


def test_each_host_resolves_its_own_secret(cluster, tmp_path):
    tokens = {number: token_hex(16) for number in (1, 2)}
    head = cluster.head()
    hosts = {cluster.worker(number, LAB_TOKEN=token).address: token for number, token in tokens.items()}
    script, out = tmp_path / "job.py", tmp_path / "out.json"
    script.write_text(JOB)
    with out.open("wb") as output, (tmp_path / "err.txt").open("wb") as errors:
        environment = {**cluster.environment, "RAY_ADDRESS": cluster.address}
        process = head.start([sys.executable, str(script)], tmp_path, environment, output, errors)
        assert process.wait(300) == 0, (tmp_path / "err.txt").read_text()[-3000:]
    digests = json.loads(out.read_text().strip().splitlines()[-1])
    assert all(digest == sha256(hosts[address].encode()).hexdigest() for digest, address in digests)
    files = [file for folder in (cluster.scratch, tmp_path) for file in folder.rglob("*") if file.is_file()]
    assert [file for file in files for token in tokens.values() if token.encode() in file.read_bytes()] == []
