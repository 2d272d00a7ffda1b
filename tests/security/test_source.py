"""Tests that the package never passes text or bytes from outside to a function that runs them."""

import ast
import re

import pytest

BARRED = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execv", "os.spawnv",
    "pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads", "marshal.loads", "shelve.open",
    "joblib.load", "dill.loads", "yaml.unsafe_load", "yaml.full_load", "yaml.safe_load", "torch.jit.load",
    "torch.hub.load", "tempfile.mktemp", "subprocess.getoutput",
}  # fmt: skip
"""Calls that are not allowed. `yaml.safe_load` is one, as it accepts duplicate keys and many aliases."""
NEEDED = {"torch.load": ("weights_only", True)}
WRONG = {
    "shell": True, "allow_pickle": True, "trust_remote_code": True, "weights_only": False,
    "use_safetensors": False,
}  # fmt: skip

PLUGINS = {f"mlcl/config/plugin_files.py: {name}" for name in ("compile", "exec")}
"""Allowed calls that run a job's plugin files, after the checks and only with the text that was hashed."""
CALLERS = {"mlcl/models/caller_module.py: pickle.loads"}
"""The allowed call that loads a caller's module from a plugin file, which runs only where plugins may run."""
RANKS = {
    f"mlcl/testing/ranks.py: torch.load{argument}"
    for argument in (" without weights_only", "(weights_only=False)")
}
"""Allowed calls of a test's processes, which read files that the same test wrote into its own folder."""


def calls(root):
    for file in sorted((root / "mlcl").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                keywords = {
                    word.arg: word.value.value
                    for word in node.keywords
                    if isinstance(word.value, ast.Constant)
                }
                yield f"{file.relative_to(root)}:{node.lineno}", ast.unparse(node.func), keywords


def findings(place, name, keywords):
    if name in BARRED or name.endswith(".extractall"):
        yield f"{place}: {name}"
    if name in NEEDED and keywords.get(NEEDED[name][0]) is not NEEDED[name][1]:
        yield f"{place}: {name} without {NEEDED[name][0]}"
    for word, value in WRONG.items():
        if keywords.get(word) is value:
            yield f"{place}: {name}({word}={value})"


def test_the_package_runs_nothing_that_it_reads(root):
    all_calls = list(calls(root))
    assert len(all_calls) > 1000
    all_findings = [finding for call in all_calls for finding in findings(*call)]
    assert {re.sub(r":\d+:", ":", finding) for finding in all_findings} == PLUGINS | CALLERS | RANKS


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("eval", {}), ("torch.load", {}), ("torch.load", {"weights_only": False}), ("archive.extractall", {}),
        ("subprocess.run", {"shell": True}), ("np.load", {"allow_pickle": True}),
    ],
)  # fmt: skip
def test_what_is_looked_for_is_found(name, keywords):
    assert list(findings("here", name, keywords))
