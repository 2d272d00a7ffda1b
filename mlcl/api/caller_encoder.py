"""A caller's `torch.nn.Module` as the encoder of a job: a plugin file in the home, and the job's section."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from safetensors.torch import save
from torch import nn

from mlcl.api.identity import Identity, identity_of
from mlcl.config import JobConfig
from mlcl.config.plugin_files import PluginFile, text_that_ran
from mlcl.data.tokens import Tokenizer, load_tokenizer, padded_tokenizer
from mlcl.errors import UserError
from mlcl.files import write_if_missing
from mlcl.models import ENCODERS, build_encoder
from mlcl.models.caller_collate import ALLOWED as BATCH
from mlcl.models.caller_collate import CallerCollate
from mlcl.models.caller_module import PYTHON, CallerModule, pack, takes, without_weights
from mlcl.models.caller_state import check_state
from mlcl.models.encoder import SIZES, Reads
from mlcl.training.checks import check_job
from mlcl.training.context import own_process_state
from mlcl.training.job_data import open_dataset

FOLDER = "encoders"
"""The folder of the plugin files, weights and tokenizers of callers' modules, under the home."""
NAMED = 3
"""The largest number of classes that the line on an encoder's limitations names."""
ALLOWED = "a torch.nn.Module, a class of them, or a functools.partial of it; a job names built-in ones"
COLLATE_ALLOWED = f"a function of a list of texts, or of images of Pillow, that returns {BATCH}"
TEXT = '''"""The encoder {title}, which a caller of mlcl has given as a torch.nn.Module."""

from mlcl.models.caller_module import caller_encoder

ENCODER = caller_encoder(
    {name!r},
    {title!r},
    {reads!r},
    weights={weights!r},
    tokenizer={tokenizer!r},
    python={python!r},
    pickled=(
{pickled}
    ),{collate}
)
'''


@dataclass(frozen=True)
class CallerEncoder:
    """An encoder of a caller: the section of a job, and the plugin that declares it.

    `note` is a line on limitations, empty if there are none. `size` is the key of the section with the size
    of the inputs, empty if the section has none.
    """

    section: Mapping[str, Any]
    plugin: Mapping[str, Any]
    reads: Reads
    note: str
    size: str

    def overrides(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the overrides that make this the encoder of a job; keeps the input size set in `tree`."""
        section, plugins = tree.get("encoder") or {}, tree.get("plugins") or []
        input_size = {self.size: section[self.size]} if self.size in section else {}
        return {"encoder": {**self.section, **input_size}, "plugins": [*plugins, dict(self.plugin)]}

    def check(self, job: JobConfig, home: Path | None, say: Callable[[str], None]) -> None:
        """Builds the encoder of a job once, as a check, and passes `note` to `say`.

        `home` is None if the job's data are on another machine. Then an encoder of vectors is not built,
        since only the data have the length of the vectors.
        """
        with own_process_state(None):  # the module may draw random numbers
            sizes: dict[str, Any] = {"vocabulary_size": _vocabulary_size(job)}
            if self.reads == "vectors" and home is not None:
                info = open_dataset(job, home, verify=False).info
                check_job(job, info)
                sizes = {"input_columns": {"column": info.dim or 0}}
            if self.reads != "vectors" or home is not None:
                module = build_encoder(job.encoder, **sizes)
                assert isinstance(module, CallerModule)
                check_state(module)
        if self.note:
            say(self.note)


def caller_encoder_of(
    encoder: Any, tokenizer: Any, home: Path, *, modality: Reads | None = None, collate: Any = None
) -> CallerEncoder:
    """Writes a module, or the class of one, to the home, and returns it as the encoder of a job.

    Each training starts from the weights of a given module, or calls a given class or `functools.partial`
    of a class. A module that reads texts needs a fast tokenizer, unless it is a class with the argument
    `vocabulary_size`. `collate` makes the batches of the module; with None the module gets the inputs in
    `FORMS` of `caller_module`. Raises UserError for an object that is no module, cannot be pickled, or lacks
    a tokenizer.
    """
    if not isinstance(encoder, nn.Module) and not callable(encoder):
        raise UserError("no encoder", key="encoder", found=repr(encoder)[:60], allowed=ALLOWED)
    input_kind: Reads = "vectors" if modality == "vectors" else _detect_modality(encoder, tokenizer)
    words = _serialise_tokenizer(tokenizer)
    class_name = re.sub(r"\W", "_", _encoder_title(encoder))
    if collate is None:
        _check_tokenizer(encoder, input_kind, words)
    else:
        input_kind = modality or input_kind
        _check_collate(collate, input_kind, words)
    identity = _identify([encoder, input_kind, words, *([] if collate is None else [collate])])
    base = home.absolute() / FOLDER / f"{class_name}_{identity.digest[:12]}"
    bare_encoder, weights = _strip_weights(encoder) if isinstance(encoder, nn.Module) else (encoder, None)
    section = {"name": base.name}
    for key, suffix, content in (("weights", ".safetensors", weights), ("tokenizer", ".json", words)):
        if content is not None:
            section[key] = str(write_if_missing(base.with_suffix(suffix), content))
    file = base.with_suffix(".py")
    # An existing file is kept, and a text that ran under another home: a new pickle may differ, and one
    # process runs one text of a name.
    if not file.exists() and (text := text_that_ran(file.name)) is not None:
        write_if_missing(file, text.encode())
    if not file.exists():
        caller_modules = _caller_modules(identity)
        payload = pack(bare_encoder, caller_modules)
        batches = (
            "" if collate is None else pack(collate, caller_modules, key="collate", allowed=COLLATE_ALLOWED)
        )
        text = TEXT.format(
            name=base.name,
            title=f"{class_name} of a caller",
            reads=input_kind,
            weights=None if weights is None else hashlib.sha256(weights).hexdigest(),
            tokenizer=None if input_kind != "text" or batches else "file" if words else "words",
            python=PYTHON if identity.own_code else None,
            pickled=_quote_lines(payload),
            collate=f"\n    collate=(\n{_quote_lines(batches)}\n    )," if batches else "",
        )
        write_if_missing(file, text.encode())
    source = file.read_text(encoding="utf-8")
    sha256 = hashlib.sha256(source.encode()).hexdigest()
    plugin = PluginFile(file=file.name, sha256=sha256, source=source).model_dump(exclude={"path"})
    size = SIZES.get(input_kind, "") if collate is None else ""
    return CallerEncoder(
        section, plugin, input_kind, _requirements_note(class_name, identity, section.get("weights")), size
    )


def modality_of(job: JobConfig) -> Reads:
    """Returns the modality that the encoder of a job reads."""
    return ENCODERS[job.encoder.name].reads(job.encoder)


def _caller_modules(identity: Identity) -> list[ModuleType]:
    """Returns the modules of the caller's own classes and functions, which pickles hold by value."""
    names = {code.__name__ if isinstance(code, ModuleType) else code.__module__ for code in identity.own_code}
    return [sys.modules[name] for name in names - {"__main__"} if name in sys.modules]


def _quote_lines(text: str) -> str:
    return "\n".join(f"        {line!r}" for line in re.findall(".{1,90}", text))


def _identify(
    value: Any, key: str = "encoder", allowed: str = f"{ALLOWED}; not compiled, lazy or on meta"
) -> Identity:
    try:
        return identity_of(value)
    except Exception as error:  # foreign objects may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise UserError("cannot be hashed", key=key, found=reason, allowed=allowed) from error


def _vocabulary_size(job: JobConfig) -> int:
    file = getattr(job.encoder, "tokenizer", None)
    if file is None:
        return int(getattr(job.encoder, "vocabulary", 8))
    return int(load_tokenizer(Path(file).read_text(encoding="utf-8")).get_vocab_size())


def _encoder_title(encoder: Any) -> str:
    while isinstance(encoder, partial):
        encoder = encoder.func
    return str(getattr(encoder, "__name__", type(encoder).__name__)).strip("<>")


def _detect_modality(encoder: Any, tokenizer: Any) -> Reads:
    """Returns `text` for a module with a tokenizer or whose forward takes `input_ids`, else `image`."""
    maker = encoder
    while isinstance(maker, partial):
        maker = maker.func
    forward = getattr(maker, "forward", None)
    takes_ids = forward is not None and "input_ids" in inspect.signature(forward).parameters
    return "text" if tokenizer is not None or takes_ids else "image"


def _serialise_tokenizer(tokenizer: Any) -> bytes | None:
    if tokenizer is None:
        return None
    if getattr(tokenizer, "is_fast", False):
        tokenizer = padded_tokenizer(tokenizer)
    if not isinstance(tokenizer, Tokenizer):
        allowed = "a fast tokenizer of Hugging Face, or a tokenizers.Tokenizer"
        type_name = type(tokenizer).__name__
        raise UserError(
            "not a tokenizer that can be saved", key="tokenizer", found=type_name, allowed=allowed
        )
    return tokenizer.to_str().encode()


def _check_tokenizer(encoder: Any, input_kind: Reads, words: bytes | None) -> None:
    """Raises UserError for vectors with a tokenizer, and for texts without tokenizer or vocabulary_size."""
    if input_kind == "vectors" and words is not None:
        raise UserError("vectors have no tokens", key="tokenizer", found="a tokenizer", allowed="None")
    counts_words = not isinstance(encoder, nn.Module) and takes(encoder, "vocabulary_size")
    if input_kind == "text" and words is None and not counts_words:
        problem = "a module of texts needs its tokenizer"
        allowed = "tokenizer=TOKENIZER, or a class with the argument vocabulary_size"
        raise UserError(problem, key="tokenizer", found="none", allowed=allowed)


def _check_collate(collate: Any, input_kind: Reads, words: bytes | None) -> None:
    """Raises UserError for a collate function that does not make a batch of two rows, or is not needed."""
    if not callable(collate):
        raise UserError("no function", key="collate", found=type(collate).__name__, allowed=COLLATE_ALLOWED)
    if input_kind == "vectors":
        raise UserError("vectors need no collate function", key="collate", found="a function", allowed="None")
    if words is not None:
        problem, allowed = "the collate function makes the tokens", "None beside collate"
        raise UserError(problem, key="tokenizer", found="a tokenizer", allowed=allowed)
    # The function is called before its digest is computed: a call may change settings of its tokenizer.
    CallerCollate(input_kind, lambda: collate).check()
    _identify(collate, "collate", f"{COLLATE_ALLOWED}; without open files and the like")


def _strip_weights(module: Any) -> tuple[Any, bytes]:
    """Returns a copy of a module without its weights, and the content of a file with the weights."""
    try:
        copy = deepcopy(module).cpu()
    except Exception as error:  # tensors with a history, and foreign code, may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise UserError("cannot be copied", key="encoder", found=reason, allowed=ALLOWED) from error
    return copy, save(without_weights(copy))


def _requirements_note(name: str, identity: Identity, weights: str | None) -> str:
    """Returns a line on what a machine needs to run jobs with the encoder or to open their models."""
    classes = [code.__qualname__ for code in identity.own_code if isinstance(code, type)]
    names = classes or [code.__qualname__ for code in identity.own_code if isinstance(code, FunctionType)]
    parts = []
    if names:
        suffix = ", ..." if len(names) > NAMED else ""
        parts.append(f"the code of {', '.join(names[:NAMED])}{suffix} is pickled, for Python {PYTHON} alone")
    if identity.packages:
        parts.append(f"its jobs and exported models need {', '.join(identity.packages)} to be installed")
    if weights is not None:
        parts.append(f"trainings start from {weights}, which another machine lacks")
    return f"encoder {name}: {'; '.join(parts)}" if parts else ""
