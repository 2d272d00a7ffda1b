#!/usr/bin/env python3
"""Replaces the programs that the Slurm script calls, under their names; records each call in $CALLS."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

NODES = {"localhost": "10.0.0.1", "second": "10.0.0.2"}
KEPT = re.compile("^(RAY_|MLCL_|GLOO_|NCCL_|SLURMD_NODENAME)")


def note(name, words):
    variables = {key: value for key, value in os.environ.items() if KEPT.match(key)}
    with Path(os.environ["CALLS"]).open("a") as log:
        log.write(json.dumps({"name": name, "words": words, "env": variables}) + "\n")


def srun(words):
    """Runs the command once for each node, as srun does; a failure of one ends the others."""
    command = words[words.index("bash") :]
    environments = [
        {"SLURM_NODEID": str(number), "SLURMD_NODENAME": node} for number, node in enumerate(NODES)
    ]
    processes = [
        subprocess.Popen(
            command, env={**os.environ, **variables, "SLURM_CPUS_ON_NODE": "4", "SLURM_GPUS_ON_NODE": "1"}
        )
        for variables in environments
    ]
    while None in (states := [process.poll() for process in processes]):
        if any(states) and "--kill-on-bad-exit=1" in words:
            for process in processes:
                process.terminate()
        time.sleep(0.05)
    return max(abs(process.returncode) for process in processes)


def ray(words):
    if words[0] == "list":
        calls = [json.loads(line) for line in Path(os.environ["CALLS"]).read_text().splitlines()]
        sys.stdout.write(
            "node_id: 1\n" * sum(call["name"] == "ray" and call["words"][0] == "start" for call in calls)
        )
        return 0
    if os.environ.get("BROKEN") == os.environ["SLURMD_NODENAME"]:
        return 1
    if os.environ.get("SLOW") == os.environ["SLURMD_NODENAME"]:
        signal.sigwait({signal.SIGTERM})
        return 0
    Path(words[words.index("--temp-dir") + 1], os.environ["SLURMD_NODENAME"]).mkdir(parents=True)
    with socket.socket() as server:
        if "--head" in words:
            server.bind(("localhost", int(words[words.index("--port") + 1])))
            server.listen()
        note("ray", words)
        signal.sigwait({signal.SIGTERM})
    return 0


def mlcl(words):
    if words[0] == "wait":
        signal.sigwait({signal.SIGTERM})
        return 130
    return int(words[1])


def ip(words):
    node_ip = NODES[os.environ.get("SLURMD_NODENAME", "localhost")]
    route, address = (
        f"{words[-1]} dev eth7 src {node_ip} uid 0\n",
        f"3: eth7 inet {node_ip}/24 scope global\n",
    )
    sys.stdout.write(route if "get" in words else address)
    return 0


def main(name, words):
    if name in ("scontrol", "mlcl", "srun"):
        note(name, words)
    if name == "scontrol":
        sys.stdout.write("\n".join(NODES) if words[0] == "show" else "")
        return 0
    if name == "getent":
        sys.stdout.write(f"{NODES[words[-1]]} STREAM {words[-1]}\n")
        return 0
    return {"srun": srun, "ray": ray, "mlcl": mlcl, "ip": ip}[name](words)


if __name__ == "__main__":
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGTERM} if Path(sys.argv[0]).name in ("ray", "mlcl") else set()
    )
    sys.exit(main(Path(sys.argv[0]).name, sys.argv[1:]))
