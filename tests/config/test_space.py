"""Tests the settings that space files resolve to, and the errors in them."""

import pytest
import yaml

from mlcl.config import Goal, corners, dump_job, flatten, load_job, load_space
from mlcl.config.space.domains import Choice, Float, Int, Simplex
from mlcl.errors import UserError
from mlcl.service.search.sampling import fit, grid_size, why_outside

JOB = yaml.safe_load("""
experiment: test
data: {source: icd10cm}
encoder: {name: cnn_text}
objective:
  heads:
    a: {loss: supcon, labels: section, weight: 0.1}
    b: {loss: himulcone, labels: path, weight: 0.3, temperature: {learned: 0.2}}
    c: {loss: msc, labels: section, weight: 0}
  classifier: {loss: cross_entropy, labels: section}
train: {epochs: 2, batch_size: 8}
""")


@pytest.fixture
def space(tmp_path):
    def load(text, search="{}"):
        path = tmp_path / "space.yaml"
        path.write_text(f"space: {text}\nsearch: {search}")
        return load_space(path, load_job(JOB))

    return load


def domains(space):
    return {parameter.name: parameter.domain for parameter in space.parameters}


def reached(space, key):
    """Returns the values that a key has in the corners."""
    return {repr(corner[key]) for corner in corners(space) if key in corner}


def heads(key, *names):
    return [f"objective.heads.{name}.{key}" for name in names or "abc"]


def test_wildcards_meet_every_head_and_replace_what_a_head_has(space):
    search_space = space("{objective.heads.*.temperature: {log_float: [1e-1, 1]}}")
    assert domains(search_space) == dict.fromkeys(heads("temperature"), Float(0.1, 1.0, log=True))
    assert corners(search_space)[0] == dict.fromkeys(heads("temperature"), 0.1)


def test_keys_that_the_job_leaves_at_their_defaults_can_vary(space):
    entries = "objective.heads.a.queue: {choice: [null, 64]}, train.compile: {choice: [false, true]}"
    search_space = space(f"{{{entries}, evaluation.every: {{choice: [1, 2]}}}}")
    assert domains(search_space)["objective.heads.a.queue"] == Choice((None, 64))
    assert domains(search_space)["train.compile"] == Choice((False, True))
    assert why_outside(search_space, load_job(JOB)) == ""
    assert fit(search_space, *[flatten(dump_job(load_job(JOB)))] * 2)["train.compile"] == 0


def test_every_kind(space):
    text = """
  train.lr: {float: [0.001, 0.01]}
  train.epochs: {int: [1, 4]}
  train.optimizer: {choice: [adamw, sgd]}
  objective.heads.*.weight: {simplex: {total: [0.1, 0.5]}}
  objective.heads.b.options.level_weights: {simplex: {total: 2, size: 2}}
"""
    levels = "objective.heads.b.options.level_weights"
    assert domains(space(text)) == {
        "train.lr": Float(0.001, 0.01),
        "train.epochs": Int(1, 4),
        "train.optimizer": Choice(("adamw", "sgd")),
        "objective.heads.*.weight": Simplex(tuple(heads("weight")), 0.1, 0.5),
        levels: Simplex((levels,), 2.0, 2.0, size=2),
    }


def test_a_space_from_python_may_have_tuples():
    weights = {"simplex": {"total": (0.1, 0.5)}, "when": {"train.optimizer": ("sgd", "adamw")}}
    tree = {"train.optimizer": {"choice": ("sgd", "adamw", "adam")}, "objective.heads.*.weight": weights}
    search_space = load_space("space", load_job(JOB), {"space": tree})
    optimizer, weight = search_space.parameters
    assert weight.domain == Simplex(tuple(heads("weight")), 0.1, 0.5)
    assert [weight.exists({optimizer.name: value}) for value in optimizer.domain.values] == [
        True,
        True,
        False,
    ]


def test_a_simplex_over_the_heads_and_the_classifier(space):
    search_space = space(
        "{objective.heads.*.weight: {simplex: {total: 1.0, with: [objective.classifier.weight]}}}"
    )
    (weights,) = domains(search_space).values()
    assert weights.keys == (*heads("weight"), "objective.classifier.weight")
    assert corners(search_space)[0] == pytest.approx(dict.fromkeys(weights.keys, 1 / 4))


def test_a_choice_is_resolved_as_the_job_resolves_it(space):
    encoders = "[{name: cnn_text}, {name: transformer, model: x}]"
    domain_of = domains(space(f"{{encoder: {{choice: {encoders}}}, train.lr: {{choice: [1]}}}}"))
    cnn, transformer = domain_of["encoder"].values
    assert cnn["dropout"] == 0.5
    assert transformer.items() >= {"model": "x", "pooling": "cls", "max_length": 128}.items()
    assert transformer["gradient_checkpointing"] is False
    assert isinstance(domain_of["train.lr"].values[0], float)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{train.sampler: {choice: [uniform, {name: pk, k: 2}]}}", {("uniform", None), ("pk", 2)}),
        (
            """{train.sampler.name: {choice: [uniform, pk]},
                train.sampler.k: {choice: [2, 4], when: {train.sampler.name: pk}}}""",
            {("uniform", None), ("pk", 2), ("pk", 4)},
        ),
    ],
)
def test_samplers_can_be_searched_whole_or_by_their_keys(space, text, expected):
    samplers = [load_job(JOB, corner).train.sampler for corner in corners(space(text))]
    assert {(sampler.name, sampler.k) for sampler in samplers} == expected


def test_post_hoc_keys_become_a_grid_and_are_not_searched(space):
    text = """
  evaluation.knn.k: {choice: [1, 5]}
  evaluation.knn.lambda: {float: [0, 1]}
  evaluation.knn.temperature: {log_float: [0.01, 1]}
"""
    search_space = space(text)
    assert search_space.parameters == ()
    assert search_space.posthoc["evaluation.knn.grid.k"] == (1, 5)
    lambdas = search_space.posthoc["evaluation.knn.grid.lambda"]
    assert (lambdas[0], lambdas[10], lambdas[-1]) == (0.0, 0.5, 1.0)
    assert search_space.posthoc["evaluation.knn.grid.temperature"][10] == pytest.approx(0.1)
    assert space("{evaluation.knn.k: {int: [1, 3]}}").posthoc["evaluation.knn.grid.k"] == (1, 2, 3)


def test_without_a_grid_of_the_job_its_own_values_stay(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text("space: {evaluation.knn.lambda: {choice: [0, 0.5]}}")
    knn = {"k": 7, "lambda": 0.5, "temperature": 0.2, "grid": None}
    grid = "evaluation.knn.grid"
    posthoc = load_space(file, load_job(JOB, {"evaluation.knn": knn})).posthoc
    assert posthoc == {f"{grid}.k": (7,), f"{grid}.lambda": (0, 0.5), f"{grid}.temperature": (0.2,)}
    assert load_space(file, load_job(JOB)).posthoc == {f"{grid}.lambda": (0, 0.5)}


LR = "{train.lr: {float: [0.1, 1]}}"


# Each line has a search, its goals, and the goal that prunes.
GOALS = """
{} | val/accuracy max | val/accuracy
{metric: val/hamming_loss} | val/hamming_loss min | val/hamming_loss
{metric: val/hamming_loss_at_half} | val/hamming_loss_at_half min | val/hamming_loss_at_half
{metric: val/loss} | val/loss min | val/loss
{metric: val/gloss} | val/gloss max | val/gloss
{metric: [val/map, val/loss], prune_by: val/loss} | val/map max, val/loss min | val/loss
{metric: [val/map, knn/val/map], mode: min, scheduler: none} | val/map min, knn/val/map min | val/map
"""


@pytest.mark.parametrize("row", GOALS.strip().splitlines())
def test_goals_and_their_modes(space, row):
    search, goals, prune_by = row.split(" | ")
    search_space, modes = space(LR, search), dict(goal.split() for goal in goals.split(", "))
    assert search_space.goals == tuple(Goal(*goal) for goal in modes.items())
    assert (search_space.metric, search_space.mode) == (prune_by, modes[prune_by])
    assert search_space.multi == (len(modes) > 1)


def test_a_condition_on_a_choice_is_drawn_after_it_and_reached_in_a_corner(space):
    search_space = space("""
  train.momentum: {float: [0.5, 0.9], when: {train.optimizer: sgd}}
  train.optimizer: {choice: [adamw, sgd]}
""")
    assert [p.name for p in search_space.parameters] == ["train.optimizer", "train.momentum"]
    assert search_space.parameters[1].condition == "train.optimizer is sgd"
    assert reached(search_space, "train.momentum") == {"0.5", "0.9"}
    assert all(("train.momentum" in c) == (c.get("train.optimizer") == "sgd") for c in corners(search_space))


def test_a_star_is_the_parameters_own_head(space):
    search_space = space("""
  objective.heads.*.loss: {choice: [supcon, msc]}
  objective.heads.*.weight: {float: [0.1, 0.3], when: {objective.heads.*.loss: msc}}
""")
    conditions = {p.name: p.condition for p in search_space.parameters if p.condition}
    assert conditions == dict(zip(heads("weight"), (f"{key} is msc" for key in heads("loss")), strict=True))

    # The job alone decides a condition on a key that is not varied.
    text = "{train.lr: {float: [0.1, 1], when: {objective.heads.c.loss: [msc, jscl]}}}"
    assert [parameter.condition for parameter in space(text).parameters] == [None]


def test_bounds_on_numbers(space):
    search_space = space("""
  train.lr: {log_float: [0.001, 0.1]}
  train.warmup: {float: [0.1, 0.2], when: {train.lr: {above: 0.01}, train.epochs: {above: 2, below: 5}}}
  train.epochs: {int: [1, 9]}
""")
    warmup = next(p for p in search_space.parameters if p.name == "train.warmup")
    assert warmup.condition == "train.lr is above 0.01, train.epochs is above 2 and below 5"
    for lr, epochs, expected in ((0.02, 3, True), (0.01, 3, False), (0.02, 5, False)):
        assert warmup.exists({"train.lr": lr, "train.epochs": epochs}) == expected
    assert reached(search_space, "train.warmup") == {"0.1", "0.2"}


def test_a_chain_falls_back_on_the_jobs_own_value(space):
    """A condition on a parameter that does not exist uses the job's value: here 0.9 for adamw's momentum."""
    search_space = space("""
  train.optimizer: {choice: [adamw, sgd]}
  train.momentum: {choice: [0.5, 0.6], when: {train.optimizer: sgd}}
  train.warmup: {choice: [0.1, 0.2, 0.3], when: {train.momentum: [0.6, 0.9]}}
""")
    warmup = search_space.parameters[-1]
    assert warmup.name == "train.warmup"
    assert warmup.exists({"train.optimizer": "adamw"})
    assert not warmup.exists({"train.optimizer": "sgd", "train.momentum": 0.5})
    assert grid_size(search_space) == 3 + 1 + 3


def test_keys_of_a_section_that_is_chosen_whole(space):
    search_space = space("""
  encoder: {choice: [{name: cnn_text}, {name: transformer, model: folder}]}
  encoder.dropout: {choice: [0.1, 0.2], when: {encoder.name: cnn_text}}
  encoder.pooling: {choice: [cls, mean], when: {encoder.name: transformer}}
""")
    jobs = [load_job(JOB, corner) for corner in corners(search_space)]
    assert {job.encoder.name for job in jobs} == {"cnn_text", "transformer"}
    assert {job.encoder.pooling for job in jobs if job.encoder.name == "transformer"} == {"cls", "mean"}
    assert grid_size(search_space) == 4


def test_a_simplex_may_have_a_condition_and_the_grid_counts_each_branch_by_itself(space):
    search_space = space("""
  train.optimizer: {choice: [adamw, sgd]}
  objective.heads.*.weight: {simplex: {total: 0.6}, when: {train.optimizer: sgd}}
""")
    assert reached(search_space, "objective.heads.a.weight") == {repr(0.6 / 3)}
    search_space = space("""
  train.epochs: {int: [1, 1000000000]}
  train.optimizer: {choice: [adamw, sgd], when: {train.epochs: {above: 999999998}}}
""")
    assert grid_size(search_space) == 999_999_998 + 2 * 2


SEARCHES = """
{metric: test/accuracy} | search.metric | selection uses validation only
{metric: [val/map, val/map]} | search.metric | names a metric twice
{metric: []} | search.metric | at least 1 item
{metric: 3} | search.metric | a list
{metric: [val/map, val/loss]} | search.prune_by | name it; allowed: val/map, val/loss
{metric: [val/map, val/loss], prune_by: val/los} | search.prune_by | did you mean val/loss
{metric: val/map, mode: [max, min]} | search.mode | neither one for all
{metric: [val/map, val/loss], scheduler: none, sampler: cmaes} | search.sampler | one metric
{sampler: brute_force} | search.sampler | found: train.lr; allowed: choice and int
{sampler: tpf} | search.sampler | brute_force
{startupp: 3} | search.startupp | did you mean startup
"""
ENTRIES = """
train.lrr: {float: [0.1, 1]} | train.lrr | did you mean train.lr?
tracking.keep: {choice: [best, all]} | tracking.keep | all trials share this key
@.*.temprature: {float: [0.1, 1]} | @.*.temprature | .temperature?
@.d.options.x: {choice: [1]} | @.d.options.x | names no key of the job
train.lr: {flaot: [0.1, 1]} | train.lr.flaot | did you mean float
train.lr: {float: [1, 0.1]} | train.lr.float | not a range
train.lr: {float: [0.1]} | train.lr.float | not a range
train.lr: {float: [0.1, .inf]} | train.lr.float | [low, high] with low < high
train.lr: {log_float: [0, 1]} | train.lr.log_float | starts above 0
train.epochs: {float: [1, 3]} | train.epochs | is a whole number
train.batch_size: {log_float: [16, 64]} | train.batch_size | is a whole number
objective.classifier.labels: {choice: [fine]} | objective.classifier.labels | all trials share this key
train.epochs: {int: [1, 2.5]} | train.epochs.int | both ends of int are whole numbers
train.lr: {choice: []} | train.lr.choice | distinct values
train.lr: {choice: [1, 1]} | train.lr.choice | distinct values
train.lr: {choice: [1, 1.0]} | train.lr | distinct values
@.*.weight: {simplex: null} | @.*.weight | exactly one kind
@.*.weight: {simplex: 1} | @.*.weight.simplex | a section with keys
@.*.weight: {simplex: {size: 2}} | @.*.weight.simplex.total | missing key
@.*.weight: {simplex: {total: -1}} | @.*.weight.simplex.total | above 0
@.*.weight: {simplex: {total: [-1, 1]}} | @.*.weight.simplex.total | not negative
@.*.weight: {simplex: {total: 1, of: 2}} | @.*.weight.simplex.of | unknown key
@.*.weight: {simplex: {total: 1, with: x}} | @.*.weight.simplex.with | a list
@.*.weight: {simplex: {total: 1, with: [x]}} | @.*.weight | names no key
@.*.weight: {simplex: {total: 1, with: [@.a.weight]}} | @.*.weight | twice
@.b.options.x: {simplex: {total: 1, size: 1}} | @.b.options.x.simplex.size | equal to 2
@.b.options.x: {simplex: {total: 1, size: 2, with: [train.lr]}} | @.b.options.x | not both
evaluation.knn.k: {simplex: {total: 1}} | evaluation.knn.k | not a set of weights
evaluation.knn: {choice: [{k: 3}]} | evaluation.knn | all trials share this key
train.lr: {float: [0.1, 1]}, train.l*: {float: [0.1, 1]} | train.l* | is varied twice
@.b.temperature: {float: [0.1, 1]}, @.b.temperature.learned: {float: [0.1, 1]} | @.b.temperature.learned | \
is varied twice
train.lr: {float: [0.1, 1], int: [1, 2]} | train.lr | exactly one kind
train.lr: {when: {train.epochs: 2}} | train.lr | exactly one kind
train.seed: {int: [0, 3]} | train.seed | all trials share this key
train.workers: {choice: [1, 2]} | train.workers | all trials share this key
train: {choice: [{epochs: 2, batch_size: 2}]} | train | all trials share this key
evaluation.metric: {choice: [val/accuracy]} | evaluation.metric | all trials share this key
train.optimizer: {choice: [adamw, sgd], when: {train.momentum: 0.5}}, train.momentum: {choice: [0.5, 0.9], \
when: {train.optimizer: sgd}} | train. | form a cycle
train.lr: {float: [0.1, 1], when: {train.lr: {above: 0.5}}} | train.lr | form a cycle
train.optimizer: {choice: [adamw]}, train.lr: {float: [0.1, 1], when: {train.optimizer: sgd}} | train.lr | \
can never hold; found: train.optimizer is sgd
train.lr: {float: [0.1, 1]}, train.momentum: {float: [0.5, 0.9], when: {train.lr: 0.5}} | train.momentum | \
for a continuous range {above: x}
train.lr: {float: [0.1, 1]}, train.momentum: {float: [0.5, 0.9], when: {train.lr: {above: 1}}} | \
train.momentum | can never hold
train.optimizer: {choice: [adamw, sgd]}, train.lr: {choice: [0.1], when: {train.optimizer: sgd}}, \
train.momentum: {float: [0, 1], when: {train.lr: 0.1, train.optimizer: adamw}} | train.momentum | can never \
hold
@.*.temperature: {float: [0.1, 1], when: {@.*.loss: msc}} | @.*.temperature.when.@.*.loss | does not vary \
this key; found: supcon; allowed: msc
train.lr: {float: [0.1, 1], when: {evaluation.knn.k: 5}} | train.lr.when.evaluation.knn.k | no trial has one
evaluation.knn.k: {choice: [1], when: {train.lr: 1}} | evaluation.knn.k | no condition
@.*.weight: {simplex: {total: 0.5}}, train.lr: {float: [0.1, 1], when: {@.a.weight: 1}} | \
train.lr.when.@.a.weight | other weights of a simplex
train.lr: {float: [0.1, 1], when: {@.*.loss: msc}} | train.lr.when.@.*.loss | not bind
train.lr: {float: [0.1, 1], when: {train.optimiser: sgd}} | train.lr.when.train.optimiser | mean \
train.optimizer
train.lr: {float: [0.1, 1], when: {encoder: x}} | train.lr.when.encoder | whole section
train.lr: {float: [0.1, 1], when: {train.epochs: []}} | train.lr.when.train.epochs | lists no value
train.lr: {float: [0.1, 1], when: {train.epochs: {over: 1}}} | train.lr.when.train.epochs | {above: x}
train.lr: {float: [0.1, 1], when: {train.epochs: {above: a}}} | train.lr.when.train.epochs | no condition
train.lr: {float: [0.1, 1], when: sgd} | train.lr.when | a section with keys
train.lr: {float: [0.1, 1], when: {}} | train.lr.when | at least 1 item
"""
CORNERS = """
train.optimizer: {choice: [adamw, lion]} | train.optimizer | leaves what the job allows
train.lr: {float: [-1, 1]} | train.lr | leaves what the job allows
evaluation.knn.lambda: {float: [0, 2]} | evaluation.knn.grid.lambda | leaves what the job allows
encoder: {choice: [{name: cnn_text, widht: 3}]} | encoder.widht | did you mean width
@.*.weight: {simplex: {total: [0.5, 1.5]}} | objective | nothing remains
train.optimizer: {choice: [adamw, sgd]}, train.momentum: {float: [0.5, 1.5], when: {train.optimizer: sgd}} \
| train.momentum | leaves what the job allows
"""


def rows(text, space="{{{}}}", search="{{}}", key="{}"):
    """Yields the lines of a table as space, search, key and part of the message; `@` stands for the heads."""
    for line in text.replace("@", "objective.heads").strip().splitlines():
        value_text, key_text, message = line.split(" | ")
        yield pytest.param(
            space.format(value_text), search.format(value_text), key.format(key_text), message, id=value_text
        )


@pytest.mark.parametrize(
    ("text", "search", "key", "message"),
    [*rows(SEARCHES, space=LR.replace("{", "{{").replace("}", "}}"), search="{}"),
     *rows(ENTRIES, key="space.{}"), *rows(CORNERS, key="space ({}"),
     ("{}", "{}", "space", "at least 1 item")],
)  # fmt: skip
def test_a_wrong_space_is_one_error_before_anything_starts(space, text, search, key, message):
    with pytest.raises(UserError) as error:
        space(text, search)
    assert error.value.file.endswith("space.yaml")
    assert error.value.key.startswith(key)
    assert message in error.value.line()


def test_a_brute_force_search_of_choices_and_whole_numbers(space, tmp_path):
    (tmp_path / "space.yaml").write_text("spaces: {}")
    with pytest.raises(UserError, match="did you mean space"):
        load_space(tmp_path / "space.yaml", load_job(JOB))
    text = "{train.epochs: {int: [1, 3]}, train.optimizer: {choice: [adamw, sgd]}}"
    assert space(text, "{sampler: brute_force}").search.sampler == "brute_force"
