"""The similarities of rows, tile by tile, by matrix products in float32, TF32 or bfloat16.

Shapes: B rows, D embedding; I, J the rows and columns of a tile.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.dense import Similarity
from mlcl.losses.weights.base import EXCLUDED, BatchRanks, Number, PairWeights
from mlcl.torch_versions import cpu_capabilities, exchange_precision, multiplies_into_float32

FloatProducts = Literal["exact", "tf32"]
"""The precision of products of float32 rows: float32 (`exact`), or TF32 with ten bits of mantissa on GPUs."""
Products = Literal["exact", "tf32", "bf16"]
"""The precision of products; with `bf16` rows are rounded to bfloat16, and products summed in float32."""
CLOSE = 0.02
"""The fraction of |a|^2 up to which |a - b|^2 is computed from a - b.

The form |a|^2 + |b|^2 - 2 a . b would lose its digits there.
"""
SAME = 1e-13
"""The fraction of |a|^2 up to which |a - b|^2 of float32 rows, computed in float64, counts as 0."""
ROUNDING = 1.01
"""An upper bound of the squared length of rows of unit length, which allows for rounding."""
_BY_DIFFERENCE = "donot_use_mm_for_euclid_dist"


@contextmanager
def matmul_precision(products: Products, device: torch.device) -> Iterator[None]:
    """Sets the precision of float32 matrix products on the device while the context is open.

    Hardware that lacks the wanted precision computes in float32. For `bf16` a GPU multiplies bfloat16
    matrices themselves (see `Operand`), and the remaining float32 matrices in TF32; a processor needs AMX.
    """
    precision = "ieee" if products == "exact" else "tf32"
    if device.type != "cuda":
        # Without AMX the setting would choose slower float32 kernels.
        precision = "bf16" if products == "bf16" and has_amx() else "ieee"
    old_precision = exchange_precision(device, precision)
    try:
        yield
    finally:
        exchange_precision(device, old_precision)


class Operand:
    """Rows `z` (B, D) that are multiplied with each other and with weights; sums have the rows' dtype.

    With `bf16`, float32 rows are rounded to bfloat16. The weights are rounded, too, if the device multiplies
    bfloat16 matrices (`multiplies_into_float32`). With `tf32`, a GPU's rows are rounded to TF32. `narrow` are
    the rounded rows, bfloat16 or float32, as the kernels of `fused` read them; None for exact products.
    """

    def __init__(self, z_BD: Tensor, products: Products) -> None:
        self.narrow: Tensor | None = None
        if z_BD.dtype == torch.float32 and products == "bf16":
            self.narrow = z_BD.bfloat16()
        elif z_BD.dtype == torch.float32 and products == "tf32" and not tiling.is_host(z_BD.device):
            self.narrow = round_to_tf32(z_BD)
        self.z = z_BD if self.narrow is None else self.narrow.float()
        self._half_z = self.narrow if products == "bf16" and multiplies_into_float32(z_BD.device) else None

    def dots(self, rows: slice, cols: slice, out_IJ: Tensor) -> None:
        """Writes z_i . z_j of a tile into `out_IJ`."""
        if self._half_z is None:
            torch.mm(self.z[rows], self.z[cols].T, out=out_IJ)
        else:
            torch.mm(self._half_z[rows], self._half_z[cols].T, out_dtype=torch.float32, out=out_IJ)

    def weights(self, weight_IJ: Tensor) -> Tensor:
        """Converts weights to the dtype that `add` multiplies."""
        return weight_IJ if self._half_z is None else weight_IJ.bfloat16()

    def add(self, sum_ID: Tensor, weight_IJ: Tensor, cols: slice) -> None:
        """Adds sum_j weight_ij z_j to `sum_ID`."""
        if self._half_z is None:
            sum_ID.addmm_(weight_IJ, self.z[cols])
        else:
            sum_ID.add_(torch.mm(weight_IJ, self._half_z[cols], out_dtype=torch.float32))


def round_to_tf32(z_BD: Tensor) -> Tensor:
    """Rounds float32 values to the ten bits of mantissa of TF32; tensor cores cut the others off."""
    bits_BD = z_BD.contiguous().view(torch.int32)
    return ((bits_BD + 0x1000) & ~0x1FFF).view(torch.float32)


@functools.cache
def has_amx() -> bool:
    """Whether the processor has instructions (AMX) that multiply bfloat16 matrices."""
    return bool(cpu_capabilities().get("amx_bf16"))


@dataclass(frozen=True)
class Candidates:
    """The rows `z` (B + L, D) that the anchors are compared with, float32 or float64, without graph.

    The first `ranks.own` rows are the anchors. The last L are prototypes, and the `ranks.queued` rows before
    them a queue's: both are candidates only. `prototypes` is L. `unit` says that no row is longer than 1.
    `products` is the precision of dot products; distances are always exact.
    """

    z: Tensor
    ranks: BatchRanks
    similarity: Similarity
    prototypes: int = 0
    unit: bool = False
    products: Products = "exact"


class Similarities:
    """Computes similarities u_ij = s_ij / tau tile by tile, in a buffer that the next tile overwrites.

    `dot`: s_ij = z_i . z_j. `euclidean`: s_ij = -|z_i - z_j|, of rows minus their common mean, which loses
    the fewest digits. The `weights` may exclude pairs, and multiply u_ij by factors.

    `z` are the given rows divided by `scale`, as `operand` holds them, so that u_ij = z_i . z_j or
    -|z_i - z_j| rounds like u_ji. The first `batch` of them are anchors of this or another process. `close`
    are the pairs of the last tile whose distance was computed from their difference. On a device, distances
    of float32 rows are computed in float64 (`wide`), which loses few digits: finding the close pairs would
    make the host wait.
    """

    def __init__(
        self,
        candidates: Candidates,
        tau: Number,
        weights: PairWeights | None = None,
    ) -> None:
        z_BD = candidates.z
        self._excluded_pairs = weights.excluded_pairs if weights and weights.excludes else None
        self._largest_factor = weights.largest_factor if weights else 1.0
        self._factors = weights.factors if weights and self._largest_factor != 1 else None
        self.euclidean = candidates.similarity == "euclidean"
        self.scale = tau if self.euclidean else tau**0.5
        self.wide = self.euclidean and z_BD.dtype == torch.float32 and not tiling.is_host(z_BD.device)
        if self.wide:
            z_BD = z_BD.double()
        scaled_BD = (z_BD - z_BD.mean(0) if self.euclidean else z_BD) / self.scale
        self.operand = Operand(scaled_BD, "exact" if self.euclidean else candidates.products)
        self.z = self.operand.z
        self._input_BD = z_BD
        self.own, self.prototypes = candidates.ranks.own, candidates.prototypes
        self.rows = len(z_BD) - self.prototypes
        self.batch = self.rows - candidates.ranks.queued
        self._square_B = self.z.square().sum(1)
        self._is_unit = candidates.unit and not self.euclidean
        self.close: tuple[Tensor, ...] = ()

    @functools.cached_property
    def _buffer(self) -> Tensor:
        return self.z.new_empty(tiling.tile_entries(len(self.z), self.z.device))

    def tile(self, rows: slice, cols: slice) -> Tensor:
        """Computes u (I, J) of a tile; it is EXCLUDED for a row with itself, and for excluded pairs."""
        shape = rows.stop - rows.start, cols.stop - cols.start
        u_IJ = self._buffer[: shape[0] * shape[1]].view(shape)
        if self.euclidean:
            self._write_distances(u_IJ, rows, cols)
        else:
            self.operand.dots(rows, cols, u_IJ)
        if self._factors is not None:
            u_IJ.mul_(self._factors(rows, cols))
        if self._excluded_pairs is not None:
            u_IJ.masked_fill_(self._excluded_pairs(rows, cols), EXCLUDED)
        return u_IJ.fill_diagonal_(EXCLUDED) if rows == cols else u_IJ

    def by_products(self, derivative_IJ: Tensor, rows: slice, cols: slice) -> Tensor:
        """Converts a tile's derivatives by u, in place, to derivatives by s / tau, without the factors."""
        return derivative_IJ if self._factors is None else derivative_IJ.mul_(self._factors(rows, cols))

    def tiles(self) -> Iterator[tuple[slice, slice, bool]]:
        """Yields the tiles of all pairs, see `tiling.tiles`."""
        return tiling.tiles(self.z.device, self.own, self.rows, self.prototypes, self.rows - self.batch)

    def bound(self) -> float:
        """Returns an upper bound of |u|; infinity if the host would have to wait for its value."""
        if self._is_unit and not isinstance(self.scale, Tensor):
            return self._largest_factor * ROUNDING / self.scale**2
        if not tiling.is_host(self.z.device):
            return math.inf
        largest = self._largest_factor * float(self._square_B.max())
        return 2 * largest**0.5 if self.euclidean else largest

    def difference(self, i: Tensor, j: Tensor) -> Tensor:
        """Computes (z_i - z_j) / scale (X, D) of pairs.

        The rows are those from which the mean was not subtracted, so that no digits are lost.
        """
        return (self._input_BD[i] - self._input_BD[j]) / self.scale

    def _write_distances(self, u_IJ: Tensor, rows: slice, cols: slice) -> None:
        """Writes -|z_i - z_j|, from |z_i|^2 + |z_j|^2 - 2 z_i . z_j, or for close rows from z_i - z_j."""
        square_I1 = self._square_B[rows, None]
        torch.addmm(self._square_B[cols], self.z[rows], self.z[cols].T, alpha=-2, out=u_IJ)
        u_IJ.add_(square_I1)
        if self.wide:
            u_IJ.masked_fill_(u_IJ <= SAME * square_I1, 0).sqrt_().neg_()
            return
        # Close rows have nearly equal norms: either square is the scale. Most tiles have no close rows.
        if bool(u_IJ.amin() > CLOSE * square_I1.amax()):
            self.close = ()
            u_IJ.sqrt_().neg_()
            return
        i, j = self.close = (u_IJ <= CLOSE * square_I1).nonzero(as_tuple=True)
        if len(i) > u_IJ.numel() // 32:
            exact_IJ = torch.cdist(self._input_BD[rows], self._input_BD[cols], compute_mode=_BY_DIFFERENCE)
            torch.mul(exact_IJ, -1 / self.scale, out=u_IJ)
            return
        u_IJ[i, j] = self.difference(rows.start + i, cols.start + j).square().sum(1)
        u_IJ.sqrt_().neg_()
