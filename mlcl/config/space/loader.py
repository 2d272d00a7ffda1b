"""Reads space files, resolves them against a job, and checks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from mlcl.config.job import JobConfig, covers, dump_job
from mlcl.config.loader import load_job, value_at
from mlcl.config.packaged import find_file
from mlcl.config.safe_yaml import read_yaml
from mlcl.config.section import Section, validate
from mlcl.config.space.domains import Choice, Domain, Float, Int, Simplex
from mlcl.config.space.keys import POSTHOC, Term, bind, entry_error, matches, nodes, setting_of, unknown_key
from mlcl.config.space.prior import check_prior, read_prior
from mlcl.config.space.search import SAMPLERS, SearchConfig, read_goals
from mlcl.config.space.space import Parameter, Space, branch_to, corners
from mlcl.errors import UserError

KINDS = ("float", "log_float", "int", "choice", "simplex")
"""The kinds of domain in a space file."""
_TOTAL = "{total: 1.0} or {total: [low, high]}, with: [keys] or size: n besides"
_BOUNDS = {"above", "below"}
_RANGE = "[low, high] with low < high"
_NOT_DISTINCT = "not a list of distinct values"
_DISTINCT = "one value or more, each once"


def _refuse(problem: str, allowed: str = "") -> NoReturn:
    raise PydanticCustomError("space", "{problem}", {"problem": problem, "expected": allowed})


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _is_distinct(values: Sequence[Any]) -> bool:
    return len(set(map(repr, values))) == len(values)


def _parse_range(value: Any) -> tuple[float, float]:
    numbers = value if isinstance(value, (list, tuple)) else ()
    if len(numbers) != 2 or not all(map(_is_number, numbers)):
        _refuse("not a range, which has two finite numbers", _RANGE)
    if not numbers[0] < numbers[1]:
        _refuse("not a range: the first number is not below the second", _RANGE)
    return numbers[0], numbers[1]


def _parse_float(value: Any) -> Float:
    low, high = _parse_range(value)
    return Float(float(low), float(high))


def _parse_log_float(value: Any) -> Float:
    domain = replace(_parse_float(value), log=True)
    if domain.low <= 0:
        _refuse("a logarithmic range starts above 0")
    return domain


def _parse_int(value: Any) -> Int:
    low, high = _parse_range(value)
    if low != int(low) or high != int(high):
        _refuse("both ends of int are whole numbers", "float: [low, high] for the numbers between")
    return Int(int(low), int(high))


def _parse_choice(values: Any) -> Choice:
    if not isinstance(values, (list, tuple)) or not values or not _is_distinct(values):
        _refuse(_NOT_DISTINCT, _DISTINCT)
    return Choice(tuple(values))


def _parse_total(value: Any) -> tuple[float, float]:
    is_range = isinstance(value, (list, tuple))
    if not is_range and not (_is_number(value) and value > 0):
        _refuse("needs a total above 0", _TOTAL)
    low, high = _parse_range(value) if is_range else (value, value)
    if low < 0:
        _refuse("weights are not negative")
    return float(low), float(high)


def _parse_term(condition: Any) -> Term:
    """Parses the value, list of values or bounds that a condition has for a key. The term's key is empty."""
    if isinstance(condition, Mapping):
        if not condition or set(condition) - _BOUNDS or not all(map(_is_number, condition.values())):
            _refuse("is no condition", "a value, [values], {above: x}, {below: x} or both")
        return Term("", (), condition.get("above"), condition.get("below"))
    values = tuple(condition) if isinstance(condition, (list, tuple)) else (condition,)
    if not values:
        _refuse("can never hold: it lists no value")
    return Term("", values)


class _Simplex(Section):
    total: Annotated[Any, AfterValidator(_parse_total)]
    with_: Annotated[tuple[str, ...], Field(alias="with")] = ()
    size: Annotated[int, Field(ge=2, strict=True)] | None = None

    @model_validator(mode="after")
    def _check_one_form(self) -> _Simplex:
        if self.size and self.with_:
            _refuse("weights are either a list of a size or with other keys, not both")
        return self


class _SpaceEntry(Section):
    """An entry of a space file: one kind of domain, and the condition under which the parameter is drawn."""

    float_: Annotated[Any, AfterValidator(_parse_float), Field(alias="float")] = None
    log_float: Annotated[Any, AfterValidator(_parse_log_float)] = None
    int_: Annotated[Any, AfterValidator(_parse_int), Field(alias="int")] = None
    choice: Annotated[Any, AfterValidator(_parse_choice)] = None
    simplex: _Simplex | None = None
    when: Annotated[dict[str, Annotated[Any, AfterValidator(_parse_term)]], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_one_kind(self) -> _SpaceEntry:
        kinds = self.model_fields_set - {"when"}
        if len(kinds) != 1 or getattr(self, next(iter(kinds))) is None:
            _refuse("give exactly one kind", ", ".join(KINDS))
        return self

    def domain(self, *keys: str) -> Domain:
        """Returns the domain of these keys. Only a simplex has several."""
        if self.simplex:
            low, high = self.simplex.total
            return Simplex(keys, low, high, self.simplex.size)
        domain: Domain = self.float_ or self.log_float or self.int_ or self.choice
        return domain


class _SpaceFile(Section):
    space: Annotated[dict[str, _SpaceEntry], Field(min_length=1)]
    search: SearchConfig = SearchConfig()


@dataclass(frozen=True)
class _Draft:
    """A parameter, the pattern and the entry that it comes from, and the texts that `*` matched."""

    parameter: Parameter
    pattern: str
    entry: _SpaceEntry
    stars: tuple[str, ...] = ()


def load_space(path: str | Path, job: JobConfig, tree: Mapping[str, Any] | None = None) -> Space:
    """Returns the checked space of a file, resolved against a job.

    Args:
        path: The path of a space file, or the name of a packaged space.
        job: The job whose keys are varied. Patterns with `*` are matched with its keys.
        tree: The content of the file, if it was read already.

    Raises:
        UserError: The file cannot be read, or the space is wrong or does not fit the job.
    """
    if tree is None:
        path = find_file("space", path)
    space_file = validate(_SpaceFile, read_yaml(path) if tree is None else dict(tree), path)
    try:
        return _resolve(space_file, job, Path(path))
    except UserError as error:
        raise (
            error if error.file else error.with_fields(file=path)
        ) from None  # an error in a prior has its file


def _resolve(space_file: _SpaceFile, job: JobConfig, path: Path) -> Space:
    tree = dump_job(job)
    job_keys = list(dict.fromkeys([*nodes(tree), *_keys_of_choices(space_file.space, tree)]))
    drafts: list[_Draft] = []
    posthoc: dict[str, tuple[Any, ...]] = {}
    for pattern, entry in space_file.space.items():
        keys = matches(pattern, pattern, [*job_keys, *POSTHOC])
        posthoc |= {POSTHOC[key]: _posthoc_grid(pattern, entry) for key in keys if key in POSTHOC}
        search_keys = {key: stars for key, stars in keys.items() if key not in POSTHOC}
        if entry.simplex and not entry.simplex.size:
            with_keys = [key for other in entry.simplex.with_ for key in matches(pattern, other, job_keys)]
            drafts.append(_Draft(Parameter(pattern, entry.domain(*search_keys, *with_keys)), pattern, entry))
        else:
            for key, stars in search_keys.items():
                parameter = Parameter(key, _resolve_domain(pattern, entry, key, tree))
                drafts.append(_Draft(parameter, pattern, entry, stars))
    knn = job.evaluation.knn
    if posthoc and knn is not None and knn.grid is None:
        job_values = {grid: (value_at(tree, key),) for key, grid in POSTHOC.items()}
        posthoc = job_values | posthoc
    _check_overlap(drafts)
    parameters = _add_conditions(drafts, job_keys, tree)
    goals, prune_by = read_goals(space_file.search, job.evaluation.metric)
    name = space_file.search.prior
    prior = () if name is None else read_prior(name, path.parent).points
    space = Space(parameters, posthoc, space_file.search, goals, prune_by, path, prior)
    _check_sampler(space)
    check_prior(space, tree)
    _check_corners(space, tree)
    return space


def _keys_of_choices(entries: Mapping[str, _SpaceEntry], tree: Mapping[str, Any]) -> Iterator[str]:
    """Yields the keys of all sections that choices offer, including keys that the job does not have."""
    job_keys = list(nodes(tree))
    for pattern, entry in entries.items():
        sections = [item for item in entry.choice.values if isinstance(item, Mapping)] if entry.choice else []
        for key in matches(pattern, pattern, job_keys) if sections else ():
            for section in sections:
                yield from nodes(_resolve_value(tree, key, section), f"{key}.")


def _resolve_value(tree: Mapping[str, Any], key: str, value: Any) -> Any:
    """Returns a value as a job resolves it: a section with its defaults, a number with the key's type."""
    try:
        return setting_of(dump_job(load_job(tree, {key: value})), key, value)
    except UserError:
        return value  # it may be valid only with other settings, see _check_corners


def _resolve_domain(pattern: str, entry: _SpaceEntry, key: str, tree: Mapping[str, Any]) -> Domain:
    """Returns the domain of a key, with listed values as a job resolves them."""
    domain = entry.domain(key)
    if isinstance(domain, Float) and isinstance(_resolve_value(tree, key, float(domain.low)), int):
        raise entry_error(pattern, "is a whole number, and the range has others", "float", "int, or choice")
    if not isinstance(domain, Choice):
        return domain
    values = tuple(_resolve_value(tree, key, value) for value in domain.values)
    if not _is_distinct(values):
        raise entry_error(pattern, _NOT_DISTINCT, values)
    return Choice(values)


def _posthoc_grid(pattern: str, entry: _SpaceEntry) -> tuple[Any, ...]:
    """Returns the values of a post-hoc key that are scored."""
    if entry.when:
        problem = "has no condition: it is not drawn, every trial is scored at all its values"
        raise entry_error(pattern, problem, list(entry.when))
    domain = entry.domain(pattern)
    if isinstance(domain, (Float, Int, Choice)):
        return domain.grid()
    raise entry_error(pattern, "not a set of weights", "simplex", KINDS[:-1])


def _check_overlap(drafts: Sequence[_Draft]) -> None:
    """Raises UserError if two entries vary a key, unless one of them chooses a whole section around it."""
    keys = [(key, draft) for draft in drafts for key in draft.parameter.keys]
    for index, (key, draft) in enumerate(keys):
        for position, (section, other) in enumerate(keys):
            in_choice = section != key and isinstance(other.parameter.domain, Choice)
            if covers(section, key) and not in_choice and (section != key or position < index):
                raise entry_error(draft.pattern, "is varied twice", key)


def _add_conditions(
    drafts: Sequence[_Draft], job_keys: Sequence[str], tree: Mapping[str, Any]
) -> tuple[Parameter, ...]:
    """Returns the parameters with their conditions, each after those that it needs.

    Raises UserError if conditions form a cycle, or if one can never hold.
    """
    raw_parameters = [draft.parameter for draft in drafts]
    patterns = {draft.parameter.name: draft.pattern for draft in drafts}
    parameters = {
        draft.parameter.name: replace(
            draft.parameter, terms=tuple(_terms(draft, raw_parameters, job_keys, tree))
        )
        for draft in drafts
    }
    predecessors = {name: parameter.needs(raw_parameters) for name, parameter in parameters.items()}
    try:
        result = tuple(parameters[name] for name in TopologicalSorter(predecessors).static_order())
    except CycleError as error:
        cycle = error.args[1]
        problem = "the conditions form a cycle"
        raise entry_error(patterns[cycle[0]], problem, " < ".join(cycle)) from None
    for parameter in result:
        if branch_to(parameter, result) is None:
            problem = "its condition can never hold"
            allowed = "values that the key can have; for a continuous range {above: x} or {below: x}"
            raise entry_error(patterns[parameter.name], problem, parameter.condition, allowed)
    return result


def _terms(
    draft: _Draft, parameters: Sequence[Parameter], job_keys: Sequence[str], tree: Mapping[str, Any]
) -> Iterator[Term]:
    """Yields the terms of a parameter's condition on keys that the space varies.

    A term on another key must hold for the job's own value, else UserError is raised.
    """
    for pattern, condition in (draft.entry.when or {}).items():
        entry = f"{draft.pattern}.when.{pattern}"
        key = bind(entry, pattern, draft.stars)
        job_value = setting_of(tree, key, None)
        _check_key(entry, key, job_value, parameters, job_keys)
        term = replace(condition, key=key, otherwise=job_value)
        if any(covers(parameter.name, key) for parameter in parameters):
            yield term
        elif not term.holds({}):
            problem, allowed = "can never hold: the space does not vary this key", term.values or str(term)
            raise entry_error(entry, problem, job_value, allowed)


def _check_key(
    entry: str, key: str, job_value: Any, parameters: Sequence[Parameter], job_keys: Sequence[str]
) -> None:
    """Raises UserError if the key of a condition is unknown, or if it cannot be used in a condition."""
    if isinstance(job_value, Mapping):
        raise entry_error(entry, "is a whole section", key, "a key in it")
    if key in POSTHOC:
        problem = "is answered after training at all its values: no trial has one of them"
        raise entry_error(entry, problem, key)
    if any(isinstance(parameter.domain, Simplex) and key in parameter.keys for parameter in parameters):
        problem = "is drawn together with other weights of a simplex: it has no range of its own"
        raise entry_error(entry, problem, key)
    if key not in job_keys and all(key not in parameter.keys for parameter in parameters):
        raise unknown_key(entry, key, job_keys)


def _check_sampler(space: Space) -> None:
    sampler = space.search.sampler
    continuous_names = [parameter.name for parameter in space.parameters if parameter.domain.continuous]
    if continuous_names and SAMPLERS[sampler].exhaustive:
        problem = f"{sampler} cannot try all of a continuous range"
        raise UserError(problem, key="search.sampler", found=continuous_names, allowed="choice and int")
    if space.prior and SAMPLERS[sampler].exhaustive:
        problem = f"{sampler} tries all settings, in an order of its own"
        raise UserError(problem, key="search.prior", found=space.search.prior, allowed="null")


def _check_corners(space: Space, tree: Mapping[str, Any]) -> None:
    """Raises UserError if a corner of the space is not a valid job, so that no trial fails later."""
    for corner in corners(space):
        try:
            load_job(tree, corner)
        except UserError as error:
            problem = f"leaves what the job allows: {error.problem}"
            raise error.with_fields(problem=problem, key=f"space ({error.key})") from None
