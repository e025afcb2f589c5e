"""Counter-based random numbers: a pure function of (seed, purpose, step), so there is no generator state to save."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

BLOCK = 4096  # uniforms made at once per purpose: a call costs a slice, not a generator


class Rng:
    """Uniform numbers from Philox 4x64-10 keyed by (seed, purpose) and indexed by step.

    The n uniforms of step k lie at counters (k*ceil(n/4) + i, n), so a block of many steps is one call and asking for
    another n gives other numbers. In every method `purpose` is a free string that says what the numbers are for, and
    `step` a counter of the caller's: the same pair always gives the same numbers.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    Parameters
    ----------
    seed : int
        Taken modulo 2**64.
    scope : str, default ""
        Put before every purpose; see `fork`.

    Examples
    --------
    >>> rng = Rng(seed=1)
    >>> bool((rng.uniforms("crop", step=7, n=3) == Rng(seed=1).uniforms("crop", step=7, n=3)).all())
    True
    """

    def __init__(self, seed: int, scope: str = "") -> None:
        self.seed = int(seed)
        self.scope = scope
        self._keys: dict[str, NDArray[np.uint64]] = {}
        self._blocks: dict[tuple[str, int], tuple[int, NDArray[np.float64]]] = {}  # the block last used, per purpose

    def uniforms(self, purpose: str, step: int, n: int) -> NDArray[np.float64]:
        """The n uniforms in [0, 1) of this purpose at this step: a view of a cached block, not to be written to."""
        block, row = self.block(purpose, step, n)
        uniforms: NDArray[np.float64] = block[row]
        return uniforms

    def block(self, purpose: str, step: int, n: int) -> tuple[NDArray[np.float64], int]:
        """The uniforms of many steps at once, (steps, n), and the row of this step; the same array for all of them."""
        rows = max(1, BLOCK // max(1, n))
        number, row = divmod(step, rows)
        held = self._blocks.get((purpose, n))
        if held is None or held[0] != number:
            held = (number, self._draw(purpose, first=number * rows, steps=rows, n=n))
            self._blocks[purpose, n] = held
        return held[1], row

    def permutation(self, purpose: str, step: int, n: int) -> NDArray[np.int64]:
        """A uniformly random order of range(n)."""
        return np.argsort(self.uniforms(purpose, step, n), kind="stable")

    def sample_without_replacement(self, purpose: str, step: int, n: int, population: int) -> list[int]:
        """n different integers of range(population), uniformly (a partial Fisher-Yates shuffle)."""
        moved: dict[int, int] = {}
        chosen = []
        for i, u in enumerate(self.uniforms(purpose, step, n).tolist()):
            j = i + int(u * (population - i))
            chosen.append(moved.get(j, j))
            moved[j] = moved.get(i, i)
        return chosen

    def integer(self, purpose: str, step: int, high: int) -> int:
        """One integer of range(high), uniformly."""
        return int(self.uniforms(purpose, step, 1)[0] * high)

    def seed_for(self, purpose: str, step: int) -> int:
        """A seed of 63 bits for another generator, such as torch's."""
        high, low = self.uniforms(purpose, step, 2).tolist()
        return (int(high * 2**32) << 31) | int(low * 2**31)

    def fork(self, scope: str) -> Rng:
        """A generator whose purposes and steps give other numbers than this one's."""
        return Rng(self.seed, f"{self.scope}{scope}: ")

    def rescope(self, scope: str) -> None:
        """Becomes `Rng(self.seed, scope)`, in place."""
        self.__init__(self.seed, scope)  # type: ignore[misc]

    def _draw(self, purpose: str, *, first: int, steps: int, n: int) -> NDArray[np.float64]:
        quads = -(-n // 4)
        key = self._keys.get(purpose)
        if key is None:
            digest = hashlib.blake2b((self.scope + purpose).encode(), digest_size=8).digest()
            key = np.array([self.seed % 2**64, int.from_bytes(digest, "little")], dtype=np.uint64)
            self._keys[purpose] = key
        counter = np.array([first * quads, n, 0, 0], dtype=np.uint64)
        raw = np.random.Philox(key=key, counter=counter).random_raw(steps * quads * 4)
        uniforms: NDArray[np.float64] = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return uniforms.reshape(steps, quads * 4)[:, :n]
