"""Tests `base` and `drop`, with which a job file states only its differences from another one."""

import re
import textwrap
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from mlcl.cli.jobs import check_words
from mlcl.cli.main import app
from mlcl.config import apply_overrides, dump_job, job_hash, load_job, read_job
from mlcl.config.loader import drop_key, yaml_with_origins
from mlcl.config.table.cells import cells_of
from mlcl.config.table.schema import load_table
from mlcl.errors import UserError

FILES = {
    "root.yaml": textwrap.dedent("""
        experiment: root
        data: {source: icd10cm, options: {level: 2}, subset: {per_class: 5}}
        encoder: {name: cnn_text, width: 8, kernel_sizes: [1, 2, 3]}
        objective:
          heads:
            a: {loss: supcon, labels: section, weight: 0.1}
            b: {loss: supcon, labels: chapter, weight: 0.3, temperature: {learned: 0.2}}
          classifier: {loss: cross_entropy, labels: section}
        train: {epochs: 2, batch_size: 8, sampler: pk}
        evaluation: {knn: {k: 3}}
    """),
    "folder/middle.yaml": "{base: ../root.yaml, experiment: middle, train: {epochs: 5}}",
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Returns a function that writes job files into the working directory."""
    monkeypatch.chdir(tmp_path)

    def files(**contents):
        for name, text in {**FILES, **contents}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return files


# Each line has a job file and its differences from root.yaml; `-` removes a key.
JOBS = """
base: root.yaml | {}
base: folder/middle.yaml | {experiment: middle, train.epochs: 5}
base: root.yaml, objective: {heads: {b: {weight: 0.2}}} | {objective.heads.b.weight: 0.2}
base: root.yaml, objective: {heads: {c: {loss: simclr, weight: 0}}} | \
{objective.heads.c: {loss: simclr, weight: 0}}
base: root.yaml, encoder: {kernel_sizes: [4]} | {encoder.kernel_sizes: [4]}
base: root.yaml, objective: {heads: {b: {temperature: 0.5}}} | {objective.heads.b.temperature: 0.5}
base: root.yaml, train: {sampler: {name: pk, k: 3}} | {train.sampler: {name: pk, k: 3}}
base: root.yaml, data: {subset: null}, train: {patience: null} | {data.subset: null, train.patience: null}
base: root.yaml, drop: [objective.heads.b] | {objective.heads.b: "-"}
base: root.yaml, drop: [encoder], encoder: {name: cnn_text} | {encoder: {name: cnn_text}}
base: folder/middle.yaml, drop: [train.sampler, evaluation] | \
{experiment: middle, train.epochs: 5, train.sampler: "-", evaluation: "-"}
"""


@pytest.mark.parametrize("row", JOBS.strip().splitlines())
def test_a_job_is_its_base_with_its_own_keys(write, row):
    job_text, changes = row.split(" | ")
    write(**{"job.yaml": f"{{{job_text}}}"})
    tree = yaml.safe_load(FILES["root.yaml"])
    for key, value in yaml.safe_load(changes).items():
        if value == "-":
            drop_key(tree, key, None)
        else:
            tree = apply_overrides(tree, {key: value})
    job, full_job = load_job("job.yaml"), load_job(tree)
    assert dump_job(job) == dump_job(full_job) == dump_job(load_job(dump_job(job)))
    assert job_hash(job) == job_hash(full_job)
    assert list(job.objective.heads) == list(full_job.objective.heads)


# Each line has a job file and the beginning of the error.
WRONG = """
base: nowhere.yaml | job.yaml, key base: no such file; found: nowhere.yaml
base: folder | folder: cannot be read; found: [Errno 21] Is a directory
base: link.yaml | link.yaml: cannot be read; found: [Errno 40] Too many levels of symbolic links
base: [root.yaml] | job.yaml, key base: not the name of a file
base: ./job.yaml | job.yaml, key base: the bases form a cycle; found: job.yaml > job.yaml
base: folder/ring.yaml | folder/ring.yaml, key base: the bases form a cycle; \
found: job.yaml > folder/ring.yaml > folder/../job.yaml
base: list.yaml | list.yaml: must be a mapping of keys
base: root.yaml, drop: [objective.heads.c] | job.yaml, key drop: the job has no such key
drop: [train] | job.yaml, key drop: leaves out keys of a base, and there is none
base: root.yaml, drop: train | job.yaml, key drop: not a list
base: root.yaml, train: {epoch: 3} | job.yaml, key train.epoch: unknown key; did you mean epochs
base: typo.yaml | typo.yaml, key train.epoch: unknown key; did you mean epochs
base: wrong.yaml, train: {lr: 0.5} | wrong.yaml, key train.epochs: input should be greater
base: root.yaml, objective: {heads: {a: {weight: 0.9}}} | job.yaml, key objective: head weights add up
base: root.yaml, drop: [train.epochs] | job.yaml, key train.epochs: missing key
bas: root.yaml | job.yaml, key bas: unknown key; did you mean base
"""


@pytest.mark.parametrize("row", WRONG.strip().splitlines())
def test_what_is_wrong_is_one_line_with_the_file_that_has_it(write, row):
    job_text, line = row.split(" | ")
    Path("link.yaml").symlink_to("link.yaml")
    write(**{
        "job.yaml": f"{{{job_text}}}",
        "list.yaml": "[1]",
        "typo.yaml": "{base: root.yaml, train: {epoch: 3}}",
        "wrong.yaml": "{base: root.yaml, train: {epochs: 0}}",
        "folder/ring.yaml": "base: ../job.yaml",
    })  # fmt: skip
    with pytest.raises(UserError) as error:
        load_job("job.yaml")
    assert error.value.line().startswith(line)


def test_overrides_change_what_is_inherited_and_a_wrong_one_is_not_in_a_file(write):
    write(**{"job.yaml": "{base: root.yaml, train: {epochs: 3}}"})
    job = load_job("job.yaml", ["train.epochs=4", "objective.heads.*.weight=0.05", "encoder.width=9"])
    assert (job.train.epochs, job.encoder.width) == (4, 9)
    assert [head.weight for head in job.objective.heads.values()] == [0.05, 0.05]
    for override, line in (
        ("train.epoch=3", "key train.epoch: unknown key"),
        ("data.subset={per_clas: 3}", "key data.subset.per_clas: unknown key"),
        ("base=root.yaml", "key base: belongs in a job file; found: root.yaml"),
        ("drop=[train]", "key drop: belongs in a job file"),
    ):
        with pytest.raises(UserError) as error:
            load_job("job.yaml", [override])
        assert error.value.line().startswith(line)
    tree = yaml.safe_load("{a: &x {n: 1}, b: *x}")
    assert read_job(tree).with_overrides({"a.n": 2}).tree == {"a": {"n": 2}, "b": {"n": 1}}


def test_a_printed_job_says_where_each_value_is_from(write):
    write(**{"folder/job.yaml": "base: middle.yaml\ntrain:\n  lr: 0.5\n  sampler: {name: pk, k: 3}\n"})
    overrides = ["train.seed=7", "data.subset={per_class: 3}"]
    result = CliRunner().invoke(app, ["run", "folder/job.yaml", "--print-config", *overrides])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout) == dump_job(load_job("folder/job.yaml", overrides))
    lines = {line.strip() for line in result.stdout.splitlines()}
    assert lines >= {
        "experiment: middle  # folder/middle.yaml:1",
        "lr: 0.5  # folder/job.yaml:3",
        "k: 3  # folder/job.yaml:4",
        "seed: 7  # command line",
        "subset:  # command line",
        "per_class: 3",
        "train:",
        "weight_decay: 0.01",
        "kernel_sizes:  # folder/../root.yaml:4",
    }
    assert load_job(yaml.safe_load(result.stdout)) == load_job("folder/job.yaml", overrides)


def test_a_long_text_of_several_lines_is_explained_at_its_end(write):
    text = "first\n\nsecond " + "word " * 40
    write(**{"job.yaml": yaml.safe_dump({"base": "root.yaml", "data": {"options": {"note": text}}})})
    output = yaml_with_origins(load_job("job.yaml"), read_job("job.yaml"))
    assert yaml.safe_load(output) == dump_job(load_job("job.yaml"))
    assert "word '  # job.yaml:" in output


def test_the_example_of_the_job_reference_loads(write, root):
    (text,) = re.findall(r"```yaml\n(.*?)```", (root / "docs" / "job-reference.md").read_text(), re.DOTALL)
    write(**{"job.yaml": text.replace("icd10cm_mlcl.yaml", str(root / "jobs" / "icd10cm_mlcl.yaml"))})
    job = load_job("job.yaml")
    assert (list(job.objective.heads), job.train.batch_size, job.train.epochs) == (["section"], 128, 40)


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_plugins_of_a_base_are_relative_to_it_and_all_files_are_uploaded(write, root, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "plugins.md").read_text(), re.DOTALL)
    write(**{
        "common/dice.py": code,
        "common/base.yaml": FILES["root.yaml"] + "plugins: [dice.py]",
        "jobs/middle.yaml": "base: ../common/base.yaml",
        "jobs/job.yaml": "{base: middle.yaml, objective: {heads: {a: {loss: dice}}}}",
        "table.yaml": "{title: t, experiment: t, source: s, job: jobs/job.yaml, tolerance: 1.0, "
        "metrics: {Acc: test/accuracy}, columns: {c: {}}, rows: {r: {}}}",
    })  # fmt: skip
    job = load_job("jobs/job.yaml")
    assert [plugin.file for plugin in job.plugins] == ["dice.py"]
    assert job_hash(load_job(dump_job(job))) == job_hash(job)
    needed_files = map(str, check_words(get_command(app), ["run", "jobs/job.yaml"], tmp_path))
    files = ["jobs/job.yaml", "jobs/middle.yaml", "jobs/../common/base.yaml", "common/dice.py"]
    assert list(needed_files) == files
    (cell,) = cells_of(load_table(tmp_path / "table.yaml"), tmp_path / "table.yaml")
    assert cell.jobs[0].plugins == job.plugins
