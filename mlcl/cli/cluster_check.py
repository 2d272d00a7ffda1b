"""`mlcl cluster-check`, which `mlcl submit --check` runs on a cluster: a table with a row for each node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import Exit, answer, boxed_table, errors, say
from mlcl.config.cluster import ClusterConfig
from mlcl.errors import UserError

GPU_BENCHMARK = Path("benchmarks") / "gpu.py"
"""The benchmark of a GPU, in a clone of mlcl."""
COLUMNS = {
    "node": "node", "gpu": "GPU", "driver": "driver", "python": "Python", "torch": "PyTorch", "ray": "Ray",
    "mlcl": "mlcl", "all_reduce_gb_s": "all-reduce GB/s", "write_mb_s": "write MB/s",
    "read_mb_s": "read MB/s", "skew_s": "clock s", "free_gib": "free GiB", "free_gpu_gib": "GPU free GiB",
}  # fmt: skip

Slices = Annotated[
    list[str] | None,
    typer.Option("--slice", help="Also this slice of `make gpu`, on one GPU; may be repeated."),
]


def cluster_check(slices: Slices = None, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """Check and measure every node of the Ray cluster in RAY_ADDRESS; the exit status is 3 for a problem."""
    from mlcl.service.ray.cluster_check import check_cluster
    from mlcl.service.ray.session import ray_session

    benchmark = ""
    with ray_session(home, announce=say):  # in the context, standard output is Ray's
        rows, problems = check_cluster(home.resolve())
        if slices:
            benchmark, status = _benchmark(slices, home)
            problems += [f"a slice of the benchmark ended with status {status}"] if status else []
    table = ([str(row.get(column, "-")) for column in COLUMNS] for row in rows)
    document = {"nodes": rows, "problems": problems, **({"benchmark": benchmark} if slices else {})}
    answer(document, boxed_table(COLUMNS.values(), table), *([benchmark] if slices else []), as_json=json)
    for problem in problems:
        errors.print(problem, style="red", markup=False)
    if problems:
        raise typer.Exit(Exit.FAILED)


def cluster_check_words(
    args: Sequence[str], slices: Sequence[str], cluster: ClusterConfig, *, as_json: bool
) -> list[str]:
    """Returns the words of the command that `mlcl submit --check` submits.

    Raises UserError if `args` has a command, or if there are slices and the working directory is no clone.
    """
    root = cluster.working_dir.root
    if args:
        raise UserError("takes no command", key="--check", found=args[0])
    if slices and not (root / GPU_BENCHMARK).is_file():
        raise UserError("not a clone of mlcl", file=root, key="--slice", found=f"no {GPU_BENCHMARK}")
    options = [word for name in slices for word in ("--slice", name)]
    return ["cluster-check", *options, *(["--json"] if as_json else [])]


def _benchmark(slices: Sequence[str], home: Path) -> tuple[str, int]:
    """Runs slices of the benchmark on a node with a GPU; returns what they print, and the exit status."""
    import ray

    command = [sys.executable, str(GPU_BENCHMARK), "--slice", *slices, "--out", str(home.resolve() / "gpu")]

    def run(folder: str) -> tuple[str, int]:
        process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return process.stdout + process.stderr, process.returncode

    result: tuple[str, int] = ray.get(ray.remote(num_gpus=1, max_retries=0)(run).remote(str(Path.cwd())))
    return result
