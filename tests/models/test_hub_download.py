"""Tests that the processes of a machine that name a model of the hub download it once."""

import os
import subprocess
import sys

from hub_server import READER, Repository, hub_server
from tiny_models import FILES, tiny_model

CODE = """
import sys
from mlcl.models.model_folder import model_folder
sys.stdin.readline()  # all begin at once
print(model_folder("ada/bert"))
"""


def test_processes_of_a_machine_fetch_a_model_once(tmp_path):
    model = tiny_model(tmp_path / "bert", "bert")
    with hub_server() as hub:
        files = {name: (model / name).read_bytes() for name in FILES}
        hub.repositories["ada/bert"] = Repository(private=True, files={**files, "pytorch_model.bin": b"0"})
        environment = {"HF_ENDPOINT": hub.address, "HF_TOKEN": READER, "HF_HOME": str(tmp_path / "cache")}
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", CODE],
                env={**os.environ, **environment, "HF_HUB_OFFLINE": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=300)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0] * 3
    assert len(set(outputs)) == 1
    assert outputs[0].startswith(str(tmp_path / "cache"))
    assert sorted(hub.downloads) == sorted(FILES)
