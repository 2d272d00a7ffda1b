"""Tests that plugin files of a job are checked before they run, travel with the job and change its hash."""

import subprocess
import sys

import pytest
import yaml
from builders import job_tree

from mlcl.config import dump_job, job_hash, load_job, load_space
from mlcl.config.plugin_files import MOST_BYTES
from mlcl.errors import UserError
from mlcl.losses import LOSSES
from mlcl.plugins import only_reading
from mlcl.tracking.params import params_of
from mlcl.training.job_data import JobData

pytestmark = pytest.mark.usefixtures("forgotten_plugin_files")

DICE = '''"""Dice: rows attract by the Dice coefficient of their label sets."""

from mlcl.losses import OverlapRule, overlap_loss


def dice_rule():
    """K_ip = 2 |S & T| / (|S| + |T|)."""
    return OverlapRule(lambda counts: 2 * counts.shared / (counts.anchor_size + counts.candidate_size))


DICE = overlap_loss("dice", dice_rule, summary="by the Dice coefficient", source="Dice 1945")
'''


@pytest.fixture
def job_file(tiny, tmp_path):
    """Returns a job file in a folder that also has `dice.py`."""
    (tmp_path / "dice.py").write_text(DICE)
    tree = job_tree(tiny)
    tree["objective"]["heads"] = {"tags": {"loss": "dice", "labels": "tags", "weight": 0.2}}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(tree))
    return _with_plugins(file, "dice.py")


def _with_plugins(job_file, *plugins):
    tree = yaml.safe_load(job_file.read_text()) | {"plugins": list(plugins)}
    job_file.write_text(yaml.safe_dump(tree))
    return job_file


def test_a_job_runs_its_plugins_and_carries_them(job_file, tmp_path):
    job = load_job(job_file)
    assert LOSSES.origins()["dice"].startswith("dice.py sha256:")
    assert JobData.of(job, tmp_path).task == "single"
    (plugin,) = dump_job(job)["plugins"]
    assert plugin == {"file": "dice.py", "sha256": job.plugins[0].sha256, "source": DICE}
    assert params_of(job)["plugins"] == f"['{LOSSES.origins()['dice']}']"


def test_another_process_needs_the_carried_job_alone(job_file, tmp_path):
    resolved = tmp_path / "elsewhere" / "job.yaml"
    resolved.parent.mkdir()
    resolved.write_text(yaml.safe_dump(dump_job(load_job(job_file)), sort_keys=False))
    expected = job_hash(load_job(job_file))
    (tmp_path / "dice.py").unlink()
    code = (
        "import sys; from mlcl.config import job_hash, load_job; from mlcl.losses import build_loss\n"
        "print(job_hash(load_job(sys.argv[1])), build_loss('dice').spec.summary)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, resolved], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert process.stdout.split(maxsplit=1) == [expected, "by the Dice coefficient\n"]


def test_the_content_is_part_of_the_hash_the_name_is_not(job_file, tmp_path):
    first_hash = job_hash(load_job(job_file))
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "moved.py").write_text(DICE)
    assert job_hash(load_job(_with_plugins(job_file, "losses/moved.py"))) == first_hash
    (tmp_path / "dice.py").write_text(DICE.replace("dice", "dice2").replace("2 *", "3 *"))
    changed_file = _with_plugins(job_file, "losses/moved.py", "dice.py")
    assert job_hash(load_job(changed_file)) != first_hash


def test_a_job_without_plugins_has_the_hash_of_an_empty_list(tiny):
    job = load_job(job_tree(tiny))
    assert dump_job(job)["plugins"] == []
    assert job_hash(job) == job_hash(load_job(job_tree(tiny) | {"plugins": []}))


@pytest.mark.parametrize(
    ("name", "content", "problem", "found"),
    [("missing.py", None, "no such file", "missing.py"), ("loss.txt", "", "is no Python file", "loss.txt"),
     ("folder.py", ..., "no such file", "folder.py"),
     ("../outside.py", "", "lies elsewhere", "../outside.py"),
     ("/etc/outside.py", None, "lies elsewhere", "/etc/outside.py"),
     ("latin.py", b"# \xe9", "cannot be read", "latin.py: 'utf-8'"),
     ("large.py", "#" * (MOST_BYTES + 1), "is too large", "large.py: 65,537 bytes"),
     ("broken.py", "x = 1\ndef :", "is no valid Python", "line 2: invalid syntax"),
     ("raises.py", "raise OSError('away')", "fails when it is run", "OSError: away"),
     ("leaves.py", "import sys; sys.exit(3)", "fails when it is run", "SystemExit: 3"),
     ("empty.py", "x = 1", "declares no plugin", "nothing"),
     ("imports.py", "from mlcl.losses.rules.any import ANY", "declares no plugin", "nothing"),
     ("taken.py", DICE.replace('"dice"', '"any"'), "loss any of .* the name is taken by built in", "None")],
)  # fmt: skip
def test_a_bad_file_is_one_line(job_file, tmp_path, name, content, problem, found):
    if content is ...:
        (tmp_path / name).mkdir()
    elif content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=problem) as error:
        load_job(_with_plugins(job_file, name))
    assert error.value.key == "plugins"
    assert error.value.file in (str(job_file), name)
    assert str(error.value.found).startswith(found)
    assert "dice" not in LOSSES
    assert not [name for name in sys.modules if name.startswith("mlcl_plugin_")]


@pytest.mark.parametrize("named", ["dice.py", None, {"dice.py": None}])
def test_files_that_are_no_list_are_reported_before_the_unknown_loss(job_file, named):
    job_file.write_text(yaml.safe_dump(yaml.safe_load(job_file.read_text()) | {"plugins": named}))
    with pytest.raises(UserError, match="key plugins: is not a list of files"):
        load_job(job_file)


def test_an_interrupted_file_is_run_again(job_file, tmp_path):
    (tmp_path / "dice.py").write_text("raise KeyboardInterrupt")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            load_job(job_file)
        assert not [name for name in sys.modules if name.startswith("mlcl_plugin_")]


def test_a_carried_text_must_fit_its_sum_and_a_changed_file_is_not_run_beside_the_first(job_file, tmp_path):
    tree = dump_job(load_job(job_file))
    tree["plugins"][0]["source"] += "\n"
    with pytest.raises(UserError, match=r"dice.py: the text has another SHA-256"):
        load_job(tree)
    (tmp_path / "dice.py").write_text(DICE.replace("2 *", "3 *"))
    with pytest.raises(UserError, match=r"the name is taken by dice\.py sha256:.*a new process"):
        load_job(job_file)


def test_reading_runs_nothing(job_file, tmp_path):
    (tmp_path / "encoder.py").write_text("raise AssertionError")
    _with_plugins(job_file, "encoder.py")
    with only_reading():
        job = load_job(job_file, ["encoder={name: mine, width: 7}"])
    assert "dice" not in LOSSES
    assert job.objective.heads["tags"].loss == "dice"
    assert dump_job(job)["encoder"] == {"name": "mine", "width": 7}
    with pytest.raises(UserError, match="fails when it is run"):
        load_job(job_file)


def test_a_space_may_choose_the_loss_but_not_the_plugins(job_file, tmp_path):
    job = load_job(job_file)
    space = tmp_path / "space.yaml"
    space.write_text("space: {objective.heads.tags.loss: {choice: [any, dice]}}")
    assert load_space(space, job).parameters[0].domain.values == ("any", "dice")
    space.write_text("space: {plugins: {choice: [a, b]}}")
    with pytest.raises(UserError, match="all trials share this key"):
        load_space(space, job)
