"""Tests that hostile job, space, table and cluster files and overrides give one clear error, and soon."""

import time

import pytest
import yaml
from builders import job_tree, tiny_job

from mlcl.config import load_job, load_space, parse_override
from mlcl.config.cluster import load_cluster
from mlcl.config.table.schema import load_table
from mlcl.errors import UserError

SECONDS = 10.0
"""The limit on the processor seconds of a refusal, which usually takes milliseconds."""


def doubled(kind):
    """Returns a short YAML text of nested aliases, ten on each of ten levels, that expands to gigabytes."""
    template = {"list": "[{}]", "mapping": "{{{}}}", "merge": "{{<<: [{}]}}"}[kind]
    value = {"list": "{}", "mapping": "k{1}: {0}", "merge": "{}"}[kind]
    first = (
        "{k: x}" if kind == "merge" else template.format(", ".join(value.format("x", i) for i in range(10)))
    )
    lines = [f"a0: &a0 {first}"]
    for depth in range(1, 10):
        aliases = ", ".join(value.format(f"*a{depth - 1}", i) for i in range(10))
        lines.append(f"a{depth}: &a{depth} {template.format(aliases)}")
    return "\n".join(lines)


HOSTILE = {
    "an object": "key: !!python/object/apply:os.system ['touch ran']",
    "a new object": "key: !!python/object/new:os.system ['touch ran']",
    "a name": "key: !!python/name:os.system",
    "a module": "key: !!python/module:os",
    "a private tag": "key: !run 'touch ran'",
    "aliases of lists": doubled("list"),
    "aliases of mappings": doubled("mapping"),
    "aliases of merges": doubled("merge"),
    "a merge with itself": "key: &a {<<: *a}",
    "a merge with a text": "key: {<<: a}",
    "a list in itself": "key: &a [*a]",
    "a mapping in itself": "key: &a {b: *a}",
    "deep mappings": "key: " + "{a: " * 5_000 + "1" + "}" * 5_000,
    "lists without an end": "key: " + "[" * 100_000,
    "many digits": "key: " + "9" * 100_000,
    "many hexadecimal digits": "key: 0x" + "f" * 100_000,
    "many sexagesimal digits": "key: " + "1:" * 100_000 + "1",
    "long": "key: " + "a" * 1_000_000,
    "too long": "key: " + "a" * 3_000_000,
    "many values": "key: [" + "1, " * 600_000 + "1]",
    "a key twice": "key: 1\nkey: 2",
    "two documents": "key: 1\n---\nkey: 2",
    "no date": "key: 2026-99-99",
    "no number": "key: !!int x",
    "no truth value": "key: !!bool x",
    "no time": "key: !!timestamp x",
    "a key that is a list": "? [a]\n: 1",
    "an escape": 'key: "\\e[31m"',
    "a null byte": 'key: "a\\0b"',
    "half a character": 'key: "\\ud800"',
    "an include": "key: !include /etc/passwd",
}


@pytest.fixture
def refused(tmp_path, tiny, monkeypatch):
    """Returns a function that yields the error line of each loader on a hostile text."""
    monkeypatch.chdir(tmp_path)
    job = tiny_job(tiny)
    loaders = (load_job, lambda file: load_space(file, job), load_cluster, load_table)

    def by(text):
        file = tmp_path / "hostile.yaml"
        file.write_text(text)
        start = time.process_time()
        for load in loaders:
            with pytest.raises(UserError) as error:
                load(file)
            yield error.value.line()
        assert time.process_time() - start < SECONDS
        assert not (tmp_path / "ran").exists()

    return by


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_one_clear_error(refused, text):
    lines = list(refused(text))
    assert len(lines) == 4
    for line in lines:
        assert "hostile.yaml" in line
        assert "\n" not in line
        assert len(line) < 1_000
        assert line.isprintable()


def test_an_error_shows_nothing_of_the_text_around_it(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text('storage: /mnt/lab\nenv: {HF_TOKEN: "hf_abc\n')
    with pytest.raises(UserError, match=r"unexpected end of stream \(line 3, column 1\)") as error:
        load_cluster(file)
    assert "hf_abc" not in error.value.line()


def test_aliases_of_reasonable_size_are_what_they_stand_for(tmp_path, tiny):
    tree = job_tree(tiny)
    projection = {"dim": 16}  # PyYAML writes an object that appears twice as an alias
    for head in tree["objective"]["heads"].values():
        head["projection"] = projection
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(tree))
    assert file.read_text().count("*id001") == 1
    assert [head.projection.dim for head in load_job(file).objective.heads.values()] == [16, 16]


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:os.system ['touch ran']",
        "[" * 5_000,
        "9" * 100_000,
        "2026-99-99",
        "!!int x",
        '"\\e[31m"',
    ],
)
def test_a_hostile_override_is_one_clear_error(tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"key train\.epochs: value is not valid YAML") as error:
        parse_override(f"train.epochs={value}")
    assert error.value.line().isprintable()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "key", ["__class__.x", "train.__dict__.epochs", "train.model_config.extra", "objective.heads.__init__.x"]
)
def test_an_override_reaches_keys_of_the_job_alone(tiny, key):
    with pytest.raises(UserError):
        load_job(job_tree(tiny), [f"{key}=1"])


CODE = "__import__('os').system('touch ran')"


@pytest.mark.parametrize(
    "space",
    [
        {"train.lr": {"log_float": [CODE, 1.0]}},
        {"train.lr": {"float": [0.0, 1.0], "when": CODE}},
        {"train.lr": {"float": [0.0, 1.0], "when": {CODE: 1}}},
        {"train.lr": {"float": [0.0, 1.0], "when": {"train.momentum": {"above": CODE}}}},
        {"train.lr": {"choice": [CODE]}},
        {"train.lr": {"expression": CODE}},
        {CODE: {"float": [0.0, 1.0]}},
        {"objective.heads.*.weight": {"simplex": {"total": CODE}}},
    ],
    ids=str,
)
def test_code_in_a_space_is_text_and_refused(tmp_path, tiny, monkeypatch, space):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "space.yaml"
    file.write_text(yaml.safe_dump({"space": space}))
    with pytest.raises(UserError) as error:
        load_space(file, tiny_job(tiny))
    assert "space.yaml" in error.value.line()
    assert not (tmp_path / "ran").exists()
