# make demo: set up, run the main job on real input, show the table.  make test: set up, pass every test
# but the slow ones.  make test-quick: those without Ray, servers and other processes, in a minute.
# make test-lowest: the quick tests with the oldest Python and the lowest version of every package.
PYTHON ?= python3
LOWEST_PYTHON ?= python3.10
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
READY := $(VENV)/.ready
SITE := $(BIN)/sphinx-build -q -W --keep-going -c docs/site -d .sphinx . site
FILES_AT_ONCE := --numprocesses 3 --dist loadfile --no-loadscope-reorder

# A command is many processes, each of which would compile mlcl again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test-quick test test-slow test-lowest soak check format docs bench gpu clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'pip>=25.1'  # --group
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]' --group dev
	touch $(READY)

demo: setup
	$(BIN)/mlcl sweep jobs/icd10cm_features.yaml tune_spaces/features_heads.yaml \
	  tracking.keep=best train.precision=auto --trials 12 --seeds 6
	$(BIN)/mlcl report icd10cm_features-features_heads

test-quick: setup
	$(BIN)/python -m pytest -m quick --durations 10 --durations-min 2 $(FILES_AT_ONCE)

test: setup
	$(BIN)/python -m pytest $(FILES_AT_ONCE)

test-slow: setup
	$(BIN)/python -m pytest -m slow

test-lowest: setup
	$(BIN)/python tools/lowest.py > .lowest.txt
	$(LOWEST_PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --no-cache-dir --constraint .lowest.txt --editable '.[all,minilm,words]' \
	  pytest pytest-timeout pytest-xdist hypothesis
	$(LOWEST)/bin/python -m pytest -m quick $(FILES_AT_ONCE)

soak: setup
	$(BIN)/python tests/soak/soak.py --minutes 30

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/audit.py
	$(SITE)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/python -m mlcl.config.reference > .job-reference.md
	mv .job-reference.md docs/job-reference.md
	$(SITE)
	@echo "site/index.html"

bench: setup
	$(BIN)/python benchmarks/limits.py
	$(BIN)/python benchmarks/posthoc.py
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/tracking.py
	$(BIN)/python benchmarks/paired.py
	$(BIN)/python benchmarks/verdicts.py
	$(BIN)/python benchmarks/verdict_tables.py
	$(BIN)/python benchmarks/stops.py
	$(BIN)/python benchmarks/kept_lead.py
	$(BIN)/python benchmarks/jackknife.py
	$(BIN)/python benchmarks/ranks.py
	$(BIN)/python benchmarks/features.py
	$(BIN)/python benchmarks/padding.py
	$(BIN)/python benchmarks/probe.py

gpu: setup
	$(BIN)/python benchmarks/gpu.py

clean:
	rm -rf $(VENV) $(LOWEST) .lowest.txt outputs site .sphinx .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
