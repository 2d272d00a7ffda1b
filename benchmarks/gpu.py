"""Benchmarks mlcl on a GPU in slices of eight minutes; each call continues where the last one stopped.

    python benchmarks/gpu.py [--slice NAME ...] [--out FOLDER] [--data FOLDER] [--smoke] [--needs]

Slices: tests, losses, images, packing, features, training. Each writes FOLDER/NAME.json after every measured
point, and one line of Markdown for each point to FOLDER/NAME.md. Call it again until it prints that nothing
is left. --data is a prepared CIFAR-100, which is downloaded if the option is missing. --smoke runs every
slice in a small form on any device. --needs prints the packages that the slices import besides PyTorch and
NumPy. The exit code is 1 if a test fails.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from gpu_points import Figures, Points

ROOT = Path(__file__).resolve().parent.parent
SLICES = ("tests", "losses", "images", "packing", "features", "training")
SECONDS = 480.0
NEEDS = (
    "annotated-types",
    "faiss-cpu",
    "filelock",
    "hypothesis",
    "pillow",
    "pyarrow",
    "pydantic",
    "pydantic-core",
    "pytest",
    "pytorch-metric-learning",
    "pyyaml",
    "safetensors",
    "scikit-learn",
    "scipy",
    "simple-icd-10-cm",
    "tokenizers",
    "torchvision",
    "typing-inspection",
)
TESTS = (
    "tests/losses/test_products.py",
    "tests/training/test_distributed.py",
    "tests/training/test_experiment.py",
    "tests/training/test_exported.py",
    "tests/training/test_waits.py",
)


def main() -> int:
    args = arguments()
    if args.needs:
        print("\n".join(f"{name}=={version(name)}" for name in NEEDS))
        return 0
    sys.path.insert(0, str(ROOT))  # the package may not be installed
    left_points: list[str] = []
    failures = 0
    for name in args.slice or SLICES:
        points = Points(args.out / f"{name}.json", about(args.smoke), args.seconds, args.smoke)
        print(f"\n{name}")
        run(name, points, args.data)
        left_points += [f"{name}: {point}" for point in points.left]
        failures += sum(
            figures.get("failed", 0) + figures.get("error", 0) for figures in points.points.values()
        )
    print("\n".join(["\nLeft for another call:", *left_points]) if left_points else "\nNothing is left.")
    return 1 if failures else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slice", nargs="+", choices=SLICES, metavar="NAME")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs" / "gpu", metavar="FOLDER")
    parser.add_argument("--data", metavar="FOLDER", help="a prepared CIFAR-100")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a slice")
    parser.add_argument("--smoke", action="store_true", help="small, on any device")
    parser.add_argument("--needs", action="store_true", help="print the packages, and end")
    return parser.parse_args()


def about(smoke: bool) -> Figures:
    """Returns the device, the PyTorch version and the kind of run that the figures belong to."""
    if not smoke and not torch.cuda.is_available():
        raise SystemExit("no GPU is visible to PyTorch; --smoke runs on the processor")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return {"device": device, "torch": torch.__version__, "kind": "smoke" if smoke else "measured"}


def run(name: str, points: Points, data: str | None) -> None:
    """Runs a slice. Each slice's modules are imported here, so that the other slices do not need them."""
    if name == "tests":
        points.measure("gpu-marked tests", lambda: gpu_tests(points.file.with_suffix(".log")))
    elif name == "losses":
        import gpu_losses

        gpu_losses.measure(points)
    elif name == "images":
        import gpu_images

        gpu_images.measure(points)
    else:
        import gpu_trainings

        if name == "training":
            gpu_trainings.measure_training(points, data)
        else:
            getattr(gpu_trainings, f"measure_{name}")(points)


def gpu_tests(log: Path) -> Figures:
    """Runs the tests marked `gpu` and returns the number of tests by outcome.

    pytest's output is written to `log`, and is also printed if a test fails. A file whose imports are missing
    (Ray, if the slices run from wheels) counts as an error.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.run(
        [*command, "--continue-on-collection-errors", *TESTS],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(process.stdout + process.stderr)
    counts = {
        word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|error)", process.stdout)
    }
    if process.returncode:
        print((process.stdout + process.stderr)[-8_000:])
    started = bool(counts) or process.returncode == 0
    return {"passed": 0, "failed": 0, "skipped": 0, "error": 0 if started else 1, **counts}


if __name__ == "__main__":
    sys.exit(main())
