"""Tests that tools/audit.py fails on known vulnerabilities and reports what it could not check."""

import importlib.util
import json
import subprocess
from types import SimpleNamespace

import pytest

GOOD = {"name": "good", "version": "1", "vulns": []}
BAD = {"name": "bad", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "own", "skip_reason": "not found"}
CONSISTENT = "audit: installation consistent, all packages as tested\n"


@pytest.fixture
def audit(root, monkeypatch):
    """Returns a function that runs the audit with a given answer of pip-audit and no other problem."""
    spec = importlib.util.spec_from_file_location("audit", root / "tools" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "consistent", list)
    monkeypatch.setattr(module, "pinned", list)
    monkeypatch.setattr(module, "too_new", list)

    def run(stdout, stderr=""):
        def answer(*_, **__):
            if isinstance(stdout, Exception):
                raise stdout
            return SimpleNamespace(stdout=stdout, stderr=stderr)

        monkeypatch.setattr(module.subprocess, "run", answer)
        return module.main()

    run.module = module
    return run


def found(*packages):
    return json.dumps({"dependencies": packages})


def test_a_vulnerable_package_fails(audit, capsys):
    assert audit(found(GOOD, BAD)) == 1
    assert capsys.readouterr().out == "bad 2: CVE-1, fixed in ['3']\n"


def test_an_accepted_advisory_passes(audit, capsys, monkeypatch):
    monkeypatch.setattr(audit.module, "ACCEPTED", {"CVE-1": "the function is not called"})
    assert audit(found(BAD)) == 0
    assert capsys.readouterr().out == CONSISTENT


@pytest.mark.parametrize(
    ("stdout", "stderr", "line"),
    [
        ("", "WARNING: one\nERROR: no route to host\n", "were not checked: ERROR: no route to host"),
        ("{}", "ERROR: odd\n", "were not checked: ERROR: odd"),
        (subprocess.TimeoutExpired("pip_audit", 180), "", "were not checked: no answer within 180 s"),
        (found(UNKNOWN), "", "were not checked: the service knows none of the packages"),
    ],
)
def test_a_service_that_cannot_be_asked_is_said_and_no_failure(audit, capsys, stdout, stderr, line):
    assert audit(stdout, stderr) == 0
    assert capsys.readouterr().out == f"audit: known vulnerabilities {line}\n{CONSISTENT}"


def test_a_package_that_the_service_does_not_know_is_named_and_hides_no_finding(audit, capsys):
    assert audit(found(GOOD, UNKNOWN)) == 0
    assert capsys.readouterr().out == f"audit: the vulnerability service does not know own\n{CONSISTENT}"
    assert audit(found(BAD, UNKNOWN)) == 1


def test_problems_of_the_installation_fail_where_the_service_cannot_be_asked(audit, capsys, monkeypatch):
    monkeypatch.setattr(audit.module, "pinned", lambda: ["x 2: constraints.txt says 1"])
    assert audit("", "ERROR: no network") == 1
    assert capsys.readouterr().out.endswith("x 2: constraints.txt says 1\n")


def test_a_package_that_the_oldest_python_cannot_install_is_named(audit, monkeypatch):
    monkeypatch.undo()
    requirements = {"old": ">=3.9", "same": ">=3.11", "patch": ">=3.11.5", "any": None}
    packages = [
        SimpleNamespace(version="1", metadata={"Name": name, "Requires-Python": requirement})
        for name, requirement in requirements.items()
    ]
    monkeypatch.setattr(audit.module.metadata, "distributions", lambda: packages)
    assert audit.module.too_new() == ["patch 1: needs Python >=3.11.5, constraints.txt is for 3.11.0"]
