"""Trains `job.yaml` with the loss and the encoder of this plugin, which is not installed.

    python examples/plugin/train.py [OVERRIDES AND OPTIONS OF `mlcl run`]

The job names the two files as its plugins. `pip install examples/plugin` would make them known to every job.
"""

import subprocess
import sys
from pathlib import Path

JOB = Path(__file__).with_name("job.yaml")
PLUGINS = "plugins=[mlcl_example/dice.py, mlcl_example/bag_of_words.py]"


def main() -> None:
    """Runs the job with the overrides and options of the command line."""
    command = [sys.executable, "-m", "mlcl", "run", str(JOB), PLUGINS, *sys.argv[1:]]
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
