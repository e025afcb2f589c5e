"""ER-ACE as a part of your own: one loss term, put in the place of ER's cross-entropy, and compared with ER.

A sample of a new class pushes down the logits of all others; old classes that are not in the batch cannot answer back.
ER-ACE takes the loss of streamed samples over the classes among them only (Caccia et al., ICLR 2022).

    python examples/er_ace_part.py
    iblurry run er "er terms=OwnClassesOnly augment.cutmix=0" --import examples/er_ace_part.py
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from iblurry import Augment, Experiment, Term, run


class OwnClassesOnly(Term):
    """Streamed samples: cross-entropy over the classes of the stream batch; memory samples: over all classes met."""

    def loss(self, forward):
        n = forward.streamed  # these come first in the batch
        present = torch.zeros_like(forward.logits[0], dtype=torch.bool).index_fill(0, forward.labels[:n], True)
        loss = F.cross_entropy(forward.logits[:n].masked_fill(~present, -1e4), forward.labels[:n])
        if n < len(forward.labels):
            loss = loss + F.cross_entropy(forward.logits[n:], forward.labels[n:])
        return loss


def main() -> None:
    unmixed = Augment(pad=0, flip=False, policy=None, cutmix=0)  # CutMix would paste in a class that is masked
    for name, parts in (("er", {}), ("er-ace", {"terms": (OwnClassesOnly(),)})):
        scores = [
            run(Experiment.of("er", "digits", seed=seed, share=0.4, augment=unmixed, **parts), out="runs").metrics.a_auc
            for seed in (1, 2)
        ]
        print(f"{name:7} A_AUC", *(f"{100 * score:.1f} %" for score in scores))


if __name__ == "__main__":  # not when the command line imports the part
    main()
