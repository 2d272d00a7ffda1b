"""How similar rows are, tile by tile. Shapes: B rows, D embedding; I, J the rows and columns of a tile."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from mlcl.losses import tiling
from mlcl.losses.products import Operand, Products
from mlcl.losses.spec import Similarity
from mlcl.losses.weights.base import Number

EXCLUDED = -1e30
"""Similarity of a row with itself: its exponential is 0, and 0 times it is 0."""
CLOSE = 0.02
"""Share of |a|^2 up to which |a - b|^2 is taken from a - b, since the product form cancels."""
SAME = 1e-13
"""Share of |a|^2 up to which |a - b|^2 of float32 rows counts as 0, where it is computed in float64."""
ROUNDING = 1.01
"""Squared length up to which rows of unit length may round."""
_BY_DIFFERENCE = "donot_use_mm_for_euclid_dist"


class Similarities:
    """u_ij = s_ij / tau of a tile, in one buffer that the next tile overwrites.

    `dot`: s_ij = z_i . z_j. `euclidean`: s_ij = -|z_i - z_j|, of rows moved to their common mean, where least
    cancels. The first `own` rows are anchors, the last `prototypes` no rows but further candidates. `z` are
    the given rows over `scale`, as `operand` holds them, so that u_ij = z_i . z_j or -|z_i - z_j| and rounds
    like u_ji. `close` are the pairs of the last tile whose distance was taken from their difference.
    On a device distances of float32 rows are computed in float64 instead, where little cancels (`wide`): what
    is close would have to be read. `unit`: no given row is longer than 1.
    """

    def __init__(
        self,
        z_BD: Tensor,
        own: int,
        kind: Similarity,
        tau: Number,
        prototypes: int = 0,
        *,
        unit: bool = False,
        products: Products = "exact",
    ) -> None:
        self.euclidean = kind == "euclidean"
        self.scale = tau if self.euclidean else tau**0.5
        self.wide = self.euclidean and z_BD.dtype == torch.float32 and not tiling.is_host(z_BD.device)
        if self.wide:
            z_BD = z_BD.double()
        scaled_BD = (z_BD - z_BD.mean(0) if self.euclidean else z_BD) / self.scale
        self.operand = Operand(scaled_BD, "exact" if self.euclidean else products)
        self.z = self.operand.z
        self._given_BD = z_BD
        self.own = own
        self.prototypes = prototypes
        self.rows = len(z_BD) - prototypes
        self._square_B = self.z.square().sum(1)
        self._unit = unit and not self.euclidean
        self.close: tuple[Tensor, ...] = ()
        self._buffer = z_BD.new_empty(tiling.entries(len(z_BD), z_BD.device))

    def tile(self, rows: slice, cols: slice) -> Tensor:
        """u (I, J); EXCLUDED where a row meets itself."""
        shape = rows.stop - rows.start, cols.stop - cols.start
        u_IJ = self._buffer[: shape[0] * shape[1]].view(shape)
        if self.euclidean:
            self._distances(u_IJ, rows, cols)
        else:
            self.operand.dots(rows, cols, u_IJ)
        return u_IJ.fill_diagonal_(EXCLUDED) if rows == cols else u_IJ

    def tiles(self) -> Iterator[tuple[slice, slice, bool]]:
        """The tiles of all pairs, see `tiling.tiles`."""
        return tiling.tiles(self.z.device, self.own, self.rows, self.prototypes)

    def reach(self) -> float:
        """The largest |u| that there can be, or a little more; infinite where it would have to be read."""
        if self._unit and not isinstance(self.scale, Tensor):
            return ROUNDING / self.scale**2
        if not tiling.is_host(self.z.device):
            return math.inf
        largest = float(self._square_B.max())
        return 2 * largest**0.5 if self.euclidean else largest

    def _distances(self, u_IJ: Tensor, rows: slice, cols: slice) -> None:
        """-|z_i - z_j| by |z_i|^2 + |z_j|^2 - 2 z_i . z_j, but by the difference where that cancels."""
        square_I1 = self._square_B[rows, None]
        torch.addmm(self._square_B[cols], self.z[rows], self.z[cols].T, alpha=-2, out=u_IJ)
        u_IJ.add_(square_I1)
        if self.wide:
            u_IJ.masked_fill_(u_IJ <= SAME * square_I1, 0).sqrt_().neg_()
            return
        # Close rows are about as long, so the square of one gives the scale. Most tiles have no close rows.
        if bool(u_IJ.amin() > CLOSE * square_I1.amax()):
            self.close = ()
            u_IJ.sqrt_().neg_()
            return
        i, j = self.close = (u_IJ <= CLOSE * square_I1).nonzero(as_tuple=True)
        if len(i) > u_IJ.numel() // 32:
            exact_IJ = torch.cdist(self._given_BD[rows], self._given_BD[cols], compute_mode=_BY_DIFFERENCE)
            torch.mul(exact_IJ, -1 / self.scale, out=u_IJ)
            return
        u_IJ[i, j] = self.difference(rows.start + i, cols.start + j).square().sum(1)
        u_IJ.sqrt_().neg_()

    def difference(self, i: Tensor, j: Tensor) -> Tensor:
        """(z_i - z_j) / scale of given pairs (X, D), before the mean has cost it digits."""
        return (self._given_BD[i] - self._given_BD[j]) / self.scale
