"""What the command line loads before it knows which command it is."""

import subprocess
import sys

import pytest

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
