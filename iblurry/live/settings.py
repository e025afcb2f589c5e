"""Settings: what a service learns with, kept beside what it learnt."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from iblurry.errors import DataError, FolderError, InputError
from iblurry.files import write_file

if TYPE_CHECKING:  # torch costs two seconds, which a command that refuses its options need not take
    from iblurry.learner import Learner
    from iblurry.method import Method
    from iblurry.parts.context import Context

FILE = "service.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The course of learning is a function of these and of the samples in their order, to the last bit."""

    method: str = "clib"  # one that learns as it goes and needs no task boundaries
    network: str = "convnet"
    memory: int = 500  # samples kept
    image: tuple[int, int, int] = (3, 32, 32)  # channels, height, width
    max_classes: int = 100  # rows of the head
    seed: int = 1
    updates_per_sample: str = "1"  # a fraction
    batch: int = 16
    measure_every: int = 10  # updates between two measures of the memory's loss, as the paper's on ImageNet
    device: str = "cpu"
    threads: int = 1  # torch's: another number changes the last bits

    def __post_init__(self) -> None:
        if len(self.image) != 3 or min(self.image) < 1 or self.image[0] not in (1, 3):
            raise InputError(f"image={self.image} is not (channels, height, width) with 1 or 3 channels, as 3x32x32.")
        for name in ("memory", "max_classes", "batch", "measure_every", "threads"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1.")

    @classmethod
    def of(cls, folder: Path, **given: Any) -> Self:
        """Those of a folder, or the usual ones where it is new; FolderError where others are given than it has."""
        kept = cls.kept(folder)
        if given.get("device") == "auto":  # decided once: another device changes the last bits
            del given["device"]
            given |= {} if kept else {"device": _default_device(given.get("network", cls.network))}
        if kept is None:
            return cls(**given)
        for name, value in given.items():
            if getattr(kept, name) != value:
                raise FolderError(
                    f"{folder} was begun with {name}={getattr(kept, name)}, not {value}; leave the option out to go "
                    "on with it, or choose another --data-dir."
                )
        return kept

    @classmethod
    def kept(cls, folder: Path) -> Self | None:
        """What a folder was begun with; None where it is new."""
        path = folder / FILE
        if not path.exists():
            return None
        try:
            about = json.loads(path.read_bytes())
            if about["format"] != FORMAT:
                raise DataError(f"{path} has format {about['format']!r}, and this version of iblurry reads {FORMAT}.")
            return cls(**about["settings"] | {"image": tuple(about["settings"]["image"])})
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path} is damaged ({error}); put back a good copy.") from error

    def keep(self, folder: Path) -> None:
        """Beside what will be learnt."""
        text = json.dumps({"format": FORMAT, "settings": self.to_json()}, indent=2)
        write_file(folder / FILE, (text + "\n").encode())

    @property
    def mean(self) -> tuple[float, ...]:
        """Of pixels from 0 to 1, by channel: nobody knows what will come."""
        return (0.5,) * self.image[0]

    @property
    def std(self) -> tuple[float, ...]:
        return (0.25,) * self.image[0]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"image": list(self.image)}

    def check(self) -> None:
        """InputError where a service could not begin with these, before anything is made for it.

        All is tried but the optimizer and the memory, whose size is compared with the machine's.
        """
        try:
            self.context()
        except (RuntimeError, MemoryError) as error:  # torch's, of a device that is not there or room that it has not
            why = str(error).splitlines()[0].rstrip(".")
            raise InputError(
                f"A learner with these settings cannot be built here ({why}); choose another device, smaller images or "
                "fewer classes."
            ) from error
        needed, there = self.memory * math.prod(self.image), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if self.device == "cpu" and needed > there:
            raise InputError(
                f"memory={self.memory} samples take {needed / 2**30:,.1f} GiB, and this machine has "
                f"{there / 2**30:,.1f}; give a smaller memory or smaller images."
            )

    def made_method(self) -> Method:
        """InputError where it cannot serve: nobody says where tasks end, and an answer must not take minutes."""
        from iblurry.method import check_updates
        from iblurry.methods import Hyperparameters, method
        from iblurry.parts import Plain

        check_updates(self.updates_per_sample)
        hyperparameters = Hyperparameters(
            batch=self.batch, updates_per_sample=self.updates_per_sample, measure_every=self.measure_every
        )
        made = method(self.method, hyperparameters)
        if not made.task_free or not isinstance(made.readout, Plain):
            why = "trains anew before it answers" if made.task_free else "must be told where tasks end"
            raise InputError(
                f"{self.method} cannot serve: it {why}. Choose a method that learns as it goes, such as clib or er."
            )
        made.check_budget(self.memory)
        return made

    def context(self) -> Context:
        """What answers need of a learner: without the optimizer, whose first import takes longer than all of this."""
        from iblurry.augment.pipeline import Augment, Pipeline
        from iblurry.engine.devices import make_engine
        from iblurry.memory import Memory
        from iblurry.network.build import build
        from iblurry.parts.context import Context
        from iblurry.rng import Rng

        self.made_method()
        rng, runs = Rng(self.seed), make_engine(self.device)
        return Context(
            network=runs.setup(build(self.network, self.image, self.max_classes, rng=rng)).eval(),
            memory=Memory(1, self.image, runs.device),
            pipeline=Pipeline(
                Augment(pad=0, flip=False), shape=self.image, mean=self.mean, std=self.std, device=runs.device
            ),
            rng=rng,
            budget=1,
            engine=runs,
        )

    def learner(self) -> Learner:
        """One that has learnt nothing yet."""
        from iblurry.engine.devices import make_engine
        from iblurry.learner import Learner

        return Learner(
            self.made_method(),
            image=self.image,
            classes=self.max_classes,
            memory=self.memory,
            network=self.network,
            mean=self.mean,
            std=self.std,
            seed=self.seed,
            boundaries=False,
            engine=make_engine(self.device),
        )


def _default_device(network: str) -> str:
    from iblurry.engine.devices import default_device

    return default_device(heavy=network.startswith("resnet"))
