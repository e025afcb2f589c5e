"""Diverse: keeps samples whose gradients differ from those of the memory (GSS)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from iblurry.components.lazy_torch import F, Tensor, torch
from iblurry.compute import Cost, Passes, Workload
from iblurry.parts.admission.admission import Admission
from iblurry.parts.memory import Sample
from iblurry.parts.part import column, scratch, state

if TYPE_CHECKING:
    from iblurry.engine.stacked import GroupedNetwork


class Diverse(Admission):
    """GSS-greedy: score c = 1 + the largest cosine between a sample's gradient and those of random memory batches.

    Parameters
    ----------
    batches : int
        Memory batches that a new sample is compared with.
    size : int
        Rows in each of them.

    Notes
    -----
    A full memory takes a new sample only if c < 1: a row i, drawn with probability in proportion to its score, gives
    way with probability score_i / (score_i + c). Gradients are of plain images in eval mode, over all parameters; the
    first sample of all scores 2.

    Aljundi et al., "Gradient based sample selection for online continual learning", NeurIPS 2019, Algorithm 2.
    """

    ranges: ClassVar[dict[str, str]] = {"batches": "[1, inf)", "size": "[1, inf)"}
    stores: ClassVar[str] = "a similarity per row"

    batches: int = 10
    size: int = 10

    similarity: Tensor = column("similarity")  # (capacity + 1,) score of each row
    new_score: Tensor = state(lambda part: part.context.memory.clock.double())  # (1,) score of the sample on offer
    score: Callable[..., None] = scratch(lambda part: part.context.compile(part._score))
    grouped: GroupedNetwork | None = scratch(lambda part: part.context.grouped(1 + part.batches))

    def cost(self, workload: Workload) -> Cost:
        images = 1 + self.batches * min(self.size, workload.capacity) if workload.capacity else 0
        return Cost(sample=Passes(images, images))

    def on_offered(self, sample: Sample) -> None:
        memory, rng = self.context.memory, self.context.rng
        if not memory.size:
            self.new_score.fill_(2.0)
            return
        count = min(self.size, memory.size)
        drawn = [
            rng.sample_without_replacement(
                "diverse rows", memory.offered * self.batches + i, count, population=memory.size
            )
            for i in range(self.batches)
        ]
        self.score(sample.images, sample.labels, self.context.engine.to_device(torch.tensor(drawn)))

    def choose_row(self, sample: Sample) -> Tensor:
        memory = self.context.memory
        draw = self.context.engine.to_device(
            torch.from_numpy(self.context.rng.uniforms("diverse", memory.offered, 2).copy())
        )
        row, score = in_proportion(self.similarity[:-1], draw[:1])
        gives_way = (self.new_score < 1) & (draw[1:] < score / (score + self.new_score))
        return torch.where(gives_way, row, memory.discard)

    def on_stored(self, row: Tensor, sample: Sample) -> None:
        self.similarity.index_copy_(0, row, self.new_score)

    def _score(self, images: Tensor, labels: Tensor, rows: Tensor) -> None:
        """Scores the new sample beside the memory's `rows` (batches, count); on the device, no value is read."""
        grouped = self.grouped if rows.shape[1] == self.size else None
        self.new_score.copy_(
            self._score_by_one(images, labels, rows) if grouped is None else self._score_at_once(images, labels, rows)
        )

    def _score_by_one(self, images: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        mine = self._gradient(images, labels)
        theirs = torch.stack([self._gradient(*self.context.memory.read(batch)) for batch in rows])
        return 1 + F.cosine_similarity(theirs, mine[None]).max()

    def _score_at_once(self, images: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """All gradients by one pass; the first group is the new sample, repeated, which changes no mean."""
        assert self.grouped is not None
        context, (batches, count) = self.context, rows.shape
        memory = context.memory.read(rows.flatten())
        pixels = torch.cat([images.expand(count, -1, -1, -1), memory.images])
        passed = 1 + batches * count
        context.network.meter.add(passed)
        context.network.meter.add(passed, backward_of=context.network.meter.purpose)
        gradients = self.grouped.gradients(
            context.pipeline.test(pixels), torch.cat([labels.expand(count), memory.labels])
        )
        return 1 + self.grouped.similarities(gradients).max()

    def _gradient(self, images: Tensor, labels: Tensor) -> Tensor:
        self.context.network.eval()
        gradient = self.context.gradient(self.context.pipeline.test(images), labels)
        return torch.cat([g.flatten() for g in gradient])


def in_proportion(scores: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """A position drawn with probability in proportion to its score, and that score, (1,) each."""
    heap = (scores + 1e-8).cumsum(0)
    row = torch.searchsorted(heap, uniform * heap[-1:]).clamp(max=len(scores) - 1)
    return row, scores.index_select(0, row)
