"""A `torch.nn.Module` of a caller as an encoder: how a job holds it, and how it is built again.

The module is in the job as the text of a plugin file, which `mlcl.api.caller_encoder` writes: a pickle of its
class, or of the module itself without its weights, which are a file beside it.

Shapes: B rows of a batch, T tokens, F numbers of a vector, D embedding, H = W pixels.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import pickle
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from pydantic import Field, create_model
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.errors import UserError
from mlcl.models.caller_collate import CallerCollate
from mlcl.models.encoder import Encoder, Reads
from mlcl.models.encoders.features import ColumnInput

KEY = "encoder"
IMAGE_SIZE, MAX_LENGTH, VOCABULARY = 64, 256, 50_000
FORMS = {
    "image": "forward(pixels), with pixels (B, 3, H, W) float32",
    "vectors": "forward(vectors), with vectors (B, F) float32",
    "text": "forward(input_ids, attention_mask), with input_ids (B, T) int64 and attention_mask (B, T) bool",
    "batch": "forward(**batch), with the tensors of the collate function by name",
}
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MOST_TEXT = 1 << 20
"""The largest number of characters in the text of a pickle, which is in every job."""
Maker = Callable[..., nn.Module]


class CallerModule(nn.Module):
    """A caller's module with `dim`, the size D of its embeddings.

    `form` is the key in `FORMS` of what its forward takes, and `example` a batch of two rows.

    Raises UserError if the forward fails on `example` or returns no embeddings (2, D) float32, and if a
    trained weight is not float32.
    """

    def __init__(self, module: nn.Module, form: str, example: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.module, self._form, self.example = module, form, example
        self.dim = self._check_forward(example)

    def forward(self, **inputs: Tensor) -> Tensor:
        """Maps the inputs that `example` has, by name, to embeddings (B, D)."""
        by_name = self._form in ("text", "batch")
        h_BD: Tensor = self.module(**inputs) if by_name else self.module(*inputs.values())
        return h_BD

    def _check_forward(self, example: Mapping[str, Tensor]) -> int:
        name, (reads, rows) = type(self.module).__name__, next(iter(example.items()))
        allowed = f"{FORMS[self._form]}, that returns embeddings (B, D) float32"
        was_training = self.module.training
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=()):
                output = self.eval()(**example)
        except Exception as error:  # foreign code may raise anything
            problem = f"forward of {name} fails with {reads} {tuple(rows.shape)}"
            raise UserError(
                problem, key=KEY, found=f"{type(error).__name__}: {error}", allowed=allowed
            ) from error
        self.train(was_training)
        is_tensor = isinstance(output, Tensor)
        if (
            not is_tensor
            or output.dtype != torch.float32
            or output.ndim != 2
            or len(output) != 2
            or not output.numel()
        ):
            detail = f"{output.dtype} {tuple(output.shape)}" if is_tensor else type(output).__name__
            problem = f"forward of {name} returns no embeddings of two rows"
            raise UserError(problem, key=KEY, found=detail, allowed=allowed)
        halves = [
            key
            for key, parameter in self.module.named_parameters()
            if parameter.requires_grad and parameter.dtype != torch.float32
        ]
        if halves:
            raise UserError(f"trained weights of {name}", key=KEY, found=halves[:3], allowed="float32")
        return int(output.shape[1])


def example_of(reads: Reads, size: int, vocabulary: int = 8) -> dict[str, Tensor]:
    """Returns two rows: images of side `size`, vectors of `size` numbers, or at most `size` token ids."""
    if reads == "image":
        return {"pixels": torch.zeros(2, 3, size, size)}
    if reads == "vectors":
        return {"column": torch.zeros(2, size)}
    length = min(4, size)
    mask_BT = torch.ones(2, length, dtype=torch.bool)
    mask_BT[1, 1:] = False
    ids_BT = (torch.arange(2 * length) % vocabulary).view(2, length) * mask_BT
    return {"input_ids": ids_BT, "attention_mask": mask_BT}


def caller_encoder(
    name: str,
    title: str,
    reads: Reads,
    pickled: str,
    *,
    weights: str | None = None,
    tokenizer: Literal["words", "file"] | None = None,
    collate: str | None = None,
    python: str | None = None,
) -> Encoder:
    """Declares the encoder of a caller's module.

    `reads` is what its forward takes, see `FORMS`. `pickled` is a text of `pack`: of the module without its
    weights if `weights`, the SHA-256 of their file, is given, else of a callable that makes the module.
    `tokenizer` is built from the training texts (`words`) or read from a `file`. `collate` is a text of
    `pack` of a function that computes the forward's inputs. `python` is the version of Python that code in
    the pickles is for; None for pickles without code.
    """
    fields = _section_fields(name, None if collate else reads, tokenizer, weights)
    batches = CallerCollate(reads, partial(_unpickle, name, collate, python)) if collate else None
    make = partial(_make_module, name, pickled, weights, python)

    def make_image_module(image_size: int, weights: str | None = None) -> nn.Module:
        return CallerModule(make(weights), reads, example_of(reads, image_size))

    def make_vector_module(input_columns: Mapping[str, int], weights: str | None = None) -> nn.Module:
        (columns,) = input_columns.values()
        return CallerModule(make(weights, in_features=columns), reads, example_of(reads, columns))

    def make_text_module(vocabulary_size: int, max_length: int, weights: str | None = None) -> nn.Module:
        module = make(weights, vocabulary_size=vocabulary_size)
        return CallerModule(module, reads, example_of(reads, max_length, vocabulary_size))

    def make_batch_module(weights: str | None = None) -> nn.Module:
        assert batches is not None
        return CallerModule(make(weights), "batch", batches.example)

    builds: dict[Reads, Maker] = {
        "image": make_image_module,
        "text": make_text_module,
        "vectors": make_vector_module,
    }
    return Encoder(
        name=name,
        title=title,
        section=create_model(f"{name}Config", __base__=EncoderConfig, **fields),
        build=builds[reads] if batches is None else make_batch_module,
        modality=None if reads == "vectors" else reads,
        frozen=(lambda _section: {"column": ColumnInput()}) if reads == "vectors" else None,
        collate=batches,
        tokenizer=tokenizer,
        no_onnx="" if batches is None else "a collate function computes its inputs",
        files=tuple(key for key in ("weights", "tokenizer") if key in fields),
        packages=("cloudpickle",),
    )


def _section_fields(
    name: str, size_of: Reads | None, tokenizer: str | None, weights: str | None
) -> dict[str, Any]:
    """Returns the keys of the section; `size_of` is the modality whose size is one of them."""
    fields: dict[str, Any] = {"name": (Literal[name], ...)}
    if size_of == "image":
        description = "side in pixels that images are resized to"
        fields["image_size"] = (int, Field(IMAGE_SIZE, ge=1, description=description))
    elif size_of == "text":
        fields["max_length"] = (int, Field(MAX_LENGTH, ge=1, description="tokens that are read of a text"))
    if tokenizer == "words":
        fields["vocabulary"] = (int, Field(VOCABULARY, ge=3, description="most frequent words that are kept"))
    if tokenizer == "file":
        fields["tokenizer"] = (str, Field(description="tokenizer.json of the tokenizer"))
    if weights is not None:
        fields["weights"] = (str, Field(description="safetensors file of the weights to start from"))
    return fields


def pack(
    target: Any,
    by_value: Iterable[ModuleType] = (),
    *,
    key: str = KEY,
    allowed: str = "a class, or a partial of it",
) -> str:
    """Pickles a callable or a module by cloudpickle, with the code of the modules `by_value`, as a text.

    Raises UserError for `key` if cloudpickle is missing, if it fails, or if the text exceeds MOST_TEXT.
    """
    try:
        import cloudpickle
    except ImportError:
        raise UserError("needs cloudpickle: pip install cloudpickle", key=key) from None
    registered = [
        module for module in by_value if module.__name__ not in cloudpickle.list_registry_pickle_by_value()
    ]
    try:
        for module in registered:
            cloudpickle.register_pickle_by_value(module)
        text = base64.b85encode(zlib.compress(cloudpickle.dumps(target), 9)).decode()
    except Exception as error:  # pickling an attribute may raise anything
        detail = f"{type(error).__name__}: {error}"
        raise UserError("cannot be pickled", key=key, found=detail, allowed=allowed) from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
    if len(text) > MOST_TEXT:
        detail, advice = f"{len(text):,} characters, compressed", "register tensors as buffers of the encoder"
        problem = "too large beside its weights" if key == KEY else "too large"
        raise UserError(problem, key=key, found=detail, allowed=f"{MOST_TEXT:,}; {advice}")
    return text


def without_weights(module: nn.Module) -> dict[str, Tensor]:
    """Takes the weights out of a module, whose tensors then need no memory, and returns them by name.

    Raises UserError if the module's state has values that are not tensors.
    """
    state = module.state_dict(keep_vars=True)
    check_tensors(state)
    weights = {
        key: value.detach().clone(memory_format=torch.contiguous_format) for key, value in state.items()
    }
    for tensor in state.values():
        tensor.data = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
    return weights


def check_tensors(state: Mapping[str, Any]) -> None:
    """Raises UserError for a module's state with values that are not tensors."""
    if keys := [key for key, value in state.items() if not isinstance(value, Tensor)]:
        raise UserError("a state that is not a tensor", key=KEY, found=keys[:3], allowed="buffers")


def takes(call: Callable[..., Any], name: str) -> bool:
    """Whether a callable has a parameter of this name, or takes any keyword argument."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.name == name or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _make_module(
    name: str, pickled: str, digest: str | None, python: str | None, weights: str | None, **arguments: Any
) -> nn.Module:
    """Makes the module; with `digest` but no `weights`, its weights are 0 until the caller loads them."""
    module = _unpickle(name, pickled, python)
    if digest is None:
        try:
            module = module(**{key: value for key, value in arguments.items() if takes(module, key)})
        except Exception as error:  # foreign code may raise anything
            raise _make_error(name, error) from error
    else:
        for tensor in module.state_dict(keep_vars=True).values():
            tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
        if weights is not None:
            module.load_state_dict(_read_weights(Path(weights), digest))
    if not isinstance(module, nn.Module):
        raise UserError(f"{name} does not return a torch.nn.Module", key=KEY, found=type(module).__name__)
    return module


def _unpickle(name: str, pickled: str, python: str | None) -> Any:
    """Unpickles a text of `pack`. Raises UserError if it is for another Python, or if unpickling fails."""
    if python not in (None, PYTHON):
        raise UserError(
            f"the module {name} was saved by another version of Python", key=KEY, found=PYTHON, allowed=python
        )
    try:
        with _isolate_classes():
            return pickle.loads(zlib.decompress(base64.b85decode(pickled)))
    except Exception as error:  # foreign code may raise anything
        raise _make_error(name, error) from error


def _make_error(name: str, error: Exception) -> UserError:
    detail = f"{type(error).__name__}: {error}"
    return UserError(f"the module {name} cannot be made here", key=KEY, found=detail)


@contextmanager
def _isolate_classes() -> Iterator[None]:
    """A context in which cloudpickle makes new classes of unpickled code, and overwrites no existing class.

    Otherwise it reuses a class that this process has pickled, and copies of its methods lack their globals.
    """
    from cloudpickle import cloudpickle

    names = {
        "_DYNAMIC_CLASS_TRACKER_BY_CLASS": WeakKeyDictionary,
        "_DYNAMIC_CLASS_TRACKER_BY_ID": WeakValueDictionary,
    }
    registries = {name: getattr(cloudpickle, name) for name in names}
    try:
        for name, kind in names.items():
            setattr(cloudpickle, name, kind())
        yield
    finally:
        for name, registry in registries.items():
            setattr(cloudpickle, name, registry)


def _read_weights(file: Path, digest: str) -> dict[str, Tensor]:
    try:
        if hashlib.sha256(file.read_bytes()).hexdigest() == digest:
            weights: dict[str, Tensor] = load_file(file)
            return weights
    except (OSError, SafetensorError) as error:
        raise UserError("cannot be read", file=file, key="encoder.weights", found=error) from None
    raise UserError("weights of another module", file=file, key="encoder.weights")
