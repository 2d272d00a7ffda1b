"""What the command line loads before it knows which command it is."""

import errno
import signal
import subprocess
import sys

import pytest
from mlflow.exceptions import MlflowException

from mlcl.cli import main

HEAVY = {"torch", "sklearn", "scipy", "mlflow", "pandas", "pyarrow", "ray", "optuna", "matplotlib"}


@pytest.mark.parametrize(
    ("modules", "allowed"),
    [
        ("mlcl.cli.main", set()),
        ("mlcl.report.comparison_tables, mlcl.report.run_lookup", {"scipy", "mlflow", "pandas", "pyarrow"}),
    ],
)
def test_help_and_comparisons_load_no_more_than_they_need(modules, allowed):
    code = f"import sys, {modules}\nsys.exit(' '.join({HEAVY - allowed} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_while_libraries_are_loaded_is_one_line(number):
    """`losses` loads torch: it is struck in the middle of that."""
    command = [sys.executable, "-X", "importtime", "-m", "mlcl", "losses"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "mlcl.errors" in line:
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, said, out) == (130, ["stopped"], "")


URL = "http://me:{}@host:5000/api/2.0 failed with code 500"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MlflowException(URL.format("secret")), f"MlflowException: {URL.format('***')}"),
        (OSError(errno.ENOSPC, "full", "a"), "no space left on the device for a"),
        (OSError(errno.ENOLCK, "no"), "give a --home on a disk with file locks: there are none"),
        (OSError(errno.EXDEV, "no", "a"), "give a --home on a disk that renames: this one does not, for a"),
    ],
)
def test_a_fault_of_the_server_or_the_disk_is_one_line_without_a_password(monkeypatch, capsys, error, said):
    def report():
        raise error

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@host:5000/")
    monkeypatch.setattr(main, "app", report)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (ended.value.code, capsys.readouterr().err) == (3, f"failed: {said}\n")
