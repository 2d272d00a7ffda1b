"""Tests the meaning of YAML values, the message about refused ones, and merge keys."""

import pytest
import yaml
from builders import job_tree, tiny_job

from mlcl.api.cluster_command import yaml_text
from mlcl.api.sweeping import sweep_plan
from mlcl.config import dump_job, job_yaml, load_job, load_space, parse_override
from mlcl.config.cluster import load_cluster
from mlcl.config.safe_yaml import dump_yaml, load_yaml, read_yaml_lines
from mlcl.config.table.schema import load_table
from mlcl.errors import UserError

BOOLEAN = "needs a number, not true or false"
OCTAL = "a number with a leading 0 would be octal: leave the 0 out, or quote a text"
SIXTY = "digits with a colon would be of base 60: write a decimal number, or quote a text"
REFUSED = {
    "train.epochs=true": BOOLEAN,
    "train.seed=false": BOOLEAN,
    "train.lr=True": BOOLEAN,
    "train.patience=true": BOOLEAN,
    "encoder.width=true": BOOLEAN,
    "encoder.kernel_sizes=[2, true]": BOOLEAN,
    "evaluation.probe={lr: [true, 0.1]}": BOOLEAN,
    "objective.classifier.weight=true": BOOLEAN,
    "objective.heads.detail.temperature=true": BOOLEAN,
    "objective.heads.detail.temperature={learned: true}": BOOLEAN,
    "evaluation.knn.grid.k=[true, 3]": BOOLEAN,
    "train.lr=on": "valid number, unable to parse string as a number; found: on",
    "train.epochs=yes": "valid integer, unable to parse string as an integer; found: yes",
    "train.patience=off": "valid integer, or 'auto'; found: off",
    "evaluation.bands=[no, yes]": "unable to parse string as an integer (and 1 more); found: no",
    "train.batch_size=0400": OCTAL,
    "train.batch_size=-010": OCTAL,
    "experiment=007": OCTAL,
    "train.batch_size=4:16": SIXTY,
    "train.lr=1:30.5": SIXTY,
    "experiment=12:30": SIXTY,
    "experiment=2026-11-27": "no key has a date: quote a text",
}


@pytest.mark.parametrize(("override", "problem"), REFUSED.items(), ids=REFUSED)
def test_a_value_that_would_be_read_as_another_one_is_refused(tiny, override, problem):
    key = override.partition("=")[0]
    with pytest.raises(UserError) as error:
        load_job(job_tree(tiny), [override])
    assert f"key {key}" in error.value.line()
    assert problem in error.value.line()


@pytest.mark.parametrize("key", ["train.epochs", "train.lr", "evaluation.margin", "data.split_seed"])
def test_true_is_no_number_in_python_either(tiny, key):
    with pytest.raises(UserError, match=BOOLEAN) as error:
        load_job(job_tree(tiny), {key: True})
    assert error.value.key == key


@pytest.mark.parametrize("margin", [".inf", ".nan", "-1"])
def test_a_margin_is_a_number(tiny, margin):
    with pytest.raises(UserError) as error:
        load_job(job_tree(tiny), [f"evaluation.margin={margin}"])
    assert error.value.key == "evaluation.margin"


FILES = {
    "job": (load_job, "train: {epochs: 2, batch_size: 4:16}"),
    "space": (None, "space: {train.batch_size: {int: [4:16, 512]}}"),
    "table": (load_table, "seeds: 4:16"),
    "cluster": (load_cluster, "trial: {cpu: 4:16}"),
}


@pytest.mark.parametrize(("load", "text"), FILES.values(), ids=FILES)
def test_every_kind_of_file_is_read_by_these_rules(tmp_path, tiny, load, text):
    file = tmp_path / "file.yaml"
    for line, problem in ((text, SIXTY), (text.replace("4:16", "0400"), OCTAL)):
        file.write_text(f"# one\n{line}\n")
        with pytest.raises(UserError) as error:
            load(file) if load else load_space(file, tiny_job(tiny))
        column = line.index("4:16" if "4:16" in line else "0400") + 1
        assert error.value.line() == f"{file}: not valid YAML; found: {problem} (line 2, column {column})"


BOOLEANS = {
    "table": (
        load_table,
        "{title: t, experiment: e, source: s, job: j, metrics: {A: test/accuracy}, rows: {a: {}}, "
        "columns: {b: {}}, paper: {}, tolerance: 1, seeds: true}",
    ),
    "cluster": (load_cluster, "{ray: {address: 'http://h:1'}, storage: /x, trial: {cpu: true}}"),
}


@pytest.mark.parametrize(("load", "text"), BOOLEANS.values(), ids=BOOLEANS)
def test_true_is_no_number_in_tables_and_cluster_files(tmp_path, load, text):
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=BOOLEAN):
        load(file)


def test_on_off_yes_and_no_are_text_that_a_truth_value_accepts(tiny, tmp_path):
    assert load_yaml("[on, Off, yes, NO, true, False]") == ["on", "Off", "yes", "NO", True, False]
    assert load_job(job_tree(tiny), ["train.drop_last=on"]).train.drop_last is True
    assert load_job(job_tree(tiny), ["train.compile=off"]).train.compile is False
    assert load_job(job_tree(tiny), ["experiment=no"]).experiment == "no"
    file = tmp_path / "file.yaml"
    file.write_text("{ray: {address: 'http://h:1'}, storage: /x, env: {DEBUG: on}}")
    assert load_cluster(file).env == {"DEBUG": "on"}
    file.write_text("space: {train.drop_last: {choice: [on, off]}}")
    assert load_space(file, tiny_job(tiny)).parameters[0].domain.values == (True, False)


UNCHANGED = {"256": 256, "0": 0, "0.5": 0.5, "1e-4": 1e-4, "0x10": 16, "1_000": 1000, "08": "08"}
UNCHANGED |= {"'0400'": "0400", "'4:16'": "4:16", "a:b": "a:b", "http://h:1": "http://h:1", "0o17": "0o17"}


@pytest.mark.parametrize(("text", "value"), UNCHANGED.items(), ids=UNCHANGED)
def test_other_numbers_and_texts_stay_what_they_are(text, value):
    result = parse_override(f"key={text}")[1]
    assert (result, type(result)) == (value, type(value))
    assert load_yaml(yaml.safe_dump({"k": value}))["k"] == value


LIKE_VALUES = ["1e-4", "1E32", "-2e+3", "+1e5", "1.5e3", "0400", "4:16", "on", "null", "e4"]


@pytest.mark.parametrize("text", LIKE_VALUES)
def test_a_text_that_looks_like_another_value_is_written_as_a_text(text):
    assert load_yaml(dump_yaml({"k": [text], text: 1})) == {"k": [text], text: 1}
    assert load_yaml(yaml_text("k", [text])) == [text]
    assert parse_override(f"k={yaml_text('k', {'one': text}, flow=True)}")[1] == {"one": text}


@pytest.mark.parametrize("name", ["1e-4", "1E32", "2e5"])
def test_a_job_named_as_a_number_is_itself_when_it_is_read_again(tiny, tmp_path, name):
    job = tiny_job(tiny, f"experiment='{name}'")
    assert load_job(load_yaml(job_yaml(job))) == job
    space = {"space": {"objective.heads.detail.labels": {"choice": [name, "detail"]}}}
    options = {"name": "s", "home": tmp_path, "shared": {}, "seeds": 0, "trials": 2, "control": False}
    assert load_yaml(sweep_plan(job, space, **options).space_text) == space


RANGES = {
    "train.epochs: {int: [2.5, 4.7]}": "both ends of int are whole numbers; found: 2.5, 4.7; allowed: float",
    "train.epochs: {int: [true, 4]}": "not a range, which has two finite numbers; found: True, 4",
    "train.epochs: {int: [1, .inf]}": "not a range, which has two finite numbers; found: 1, inf",
    "train.epochs: {int: 3}": "not a range, which has two finite numbers; found: 3",
    "train.lr: {float: [0.2, 0.1]}": "the first number is not below the second; found: 0.2, 0.1",
    "train.epochs: {choice: [2, true]}": f"leaves what the job allows: {BOOLEAN}; found: True",
}


@pytest.mark.parametrize(("entry", "problem"), RANGES.items(), ids=RANGES)
def test_a_range_that_is_none_is_refused_for_what_is_wrong_with_it(tmp_path, tiny, entry, problem):
    file = tmp_path / "space.yaml"
    file.write_text(f"space: {{{entry}}}")
    with pytest.raises(UserError) as error:
        load_space(file, tiny_job(tiny))
    assert problem in error.value.line()
    assert "train." in error.value.line()


def test_merge_keys_share_a_section(tmp_path, tiny):
    tree = job_tree(tiny)
    text = yaml.safe_dump({key: value for key, value in tree.items() if key != "objective"})
    file = tmp_path / "job.yaml"
    file.write_text(f"""{text}
objective:
  heads:
    detail: &head {{loss: supcon, labels: detail, weight: 0.2, projection: {{dim: 8}}}}
    topic:
      <<: *head
      labels: path.topic
      temperature: 0.5
  classifier: {{loss: cross_entropy, labels: detail}}
""")
    assert dump_job(load_job(file)) == dump_job(load_job(tree))
    lines = read_yaml_lines(file)[1]
    first_line = lines["objective.heads.detail"]
    assert lines["objective.heads.topic.weight"] == first_line  # inherited, so its line is that of the anchor
    assert lines["objective.heads.topic.labels"] == first_line + 3


CHAIN = (("a", 1), ("b", 2), ("c", 1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: {<<: &m {<<: &y {k: 1}, k: 2}, z: 1}\nb: *m", {"a": {"k": 2, "z": 1}, "b": {"k": 2}}),
        ("a: &x {k: 1}\nb: &y {<<: *x, k: 2}\nc: {<<: [*x, *y]}", {key: {"k": k} for key, k in CHAIN}),
    ],
)
def test_merge_keys_may_be_nested_and_listed(text, value):
    assert load_yaml(text) == value
    with pytest.raises(yaml.YAMLError, match="key k stands twice"):
        load_yaml(text.replace("{k: 1}", "{k: 1, k: 3}"))
