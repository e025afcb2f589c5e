"""Settings: what a service learns with, kept in its folder."""

from __future__ import annotations

import dataclasses
import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from iblurry.augment.transform import Transform
from iblurry.components import objects
from iblurry.components.code_hash import SCRIPTS, code_hash, is_own
from iblurry.errors import DataError, FolderError, InputError, check_fields
from iblurry.learner.config import LearnerConfig, image_shape
from iblurry.methods.method import Method, check_updates
from iblurry.methods.recipe import METHODS, Hyperparameters, method
from iblurry.network.registry import Initialise, find_network, is_pretrained, network_key, split_frozen
from iblurry.parts import RingBuffer
from iblurry.storage.files import write_file
from iblurry.storage.untrusted import MALFORMED, read_json, reason

if TYPE_CHECKING:  # importing torch takes two seconds, which a command that refuses its options need not wait
    from iblurry.learner.learner import Learner
    from iblurry.parts.context import Context

FILE = "service.json"
FORMAT = 1
UserCode: TypeAlias = tuple[list[str], dict[str, Any]]  # modules to import, and objects by their keys
SAME = ("memory", "network", "seed", "device", "initialise", "freeze", "mean", "std")  # as in a LearnerConfig
RANGES = dict.fromkeys(("memory", "max_classes", "batch", "measure_every", "threads"), "[1, inf)")
RUN_FILE = "experiment.json"  # what a run's folder has, and a service's does not


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a service learns with: its state is a function of these and of the samples in order, to the last bit.

    A service writes them as JSON and starts from them again; `learner_config` is what they mean.

    Parameters
    ----------
    method : str
        Name of a method that learns as it goes and needs no task boundaries, such as "clib" or "er"; of a user's own
        with the hash of its code, `mine@0123456789ab`.
    network, memory, seed, device, initialise, freeze, mean, std
        As in `LearnerConfig`, but "cuda" or "cpu" as the device and the network's name or key.
    image : (int, int, int)
        Channels (1 or 3), height and width.
    max_classes : int
        Labels there may be: rows of the head.
    updates_per_sample : str
        A fraction, such as "1", "3" or "1/4".
    batch : int
        Samples of an update.
    measure_every : int
        Updates between two measurements of the whole memory's loss; the paper's is 10 on ImageNet.
    threads : int
        Torch's; another number changes the last bits.
    augment : list of dict, optional
        Transforms as their `to_json` writes them; None: the learner's usual.
    recipe : dict, optional
        The whole method as its `to_json` writes it, in a service that goes on with a learner; None: the method of that
        name, with `updates_per_sample`, `batch` and `measure_every`, which otherwise do not count.
    begun_from : str, optional
        The folder or file of that learner.
    """

    method: str = "clib"
    network: str = "convnet"
    memory: int = 500
    image: tuple[int, int, int] = (3, 32, 32)
    max_classes: int = 100
    seed: int = 1
    updates_per_sample: str = "1"
    batch: int = 16
    measure_every: int = 20
    device: str = "cpu"
    threads: int = 1
    initialise: Initialise | None = None
    freeze: str = "none"
    augment: list[dict[str, Any]] | None = None
    recipe: dict[str, Any] | None = None
    mean: list[float] | None = None
    std: list[float] | None = None
    begun_from: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, RANGES)
        if image_shape("image", self.image)[0] not in (1, 3):
            raise InputError(f"image={self.image} is neither grey nor coloured; give 1 or 3 channels, as 3x32x32.")

    @classmethod
    def of(cls, folder: Path, **given: Any) -> Self:
        """Returns the settings a folder was begun with, or the defaults for a new one; FolderError where `given`
        differs.
        """
        saved = cls.load(folder)
        if "network" in given:
            if given["network"].startswith("frozen:"):
                given["network"], given["freeze"] = split_frozen(given["network"], given.get("freeze", "none"))
            given["network"] = network_key(given["network"])
        if "method" in given:
            given["method"] = _method_key(given["method"])
        if given.get("device") == "auto":  # decided once: another device changes the last bits
            from iblurry.engine.devices import default_device

            is_heavy = given.get("network", cls.network).startswith("resnet")
            given["device"] = saved.device if saved else default_device(heavy=is_heavy)
        if saved is None:
            return cls(**given)
        for name, value in given.items():
            if getattr(saved, name) != value:
                begun = f"{folder} was started with {name}={getattr(saved, name)}, not {value}"
                raise FolderError(f"{begun}; leave the option out to continue with it, or choose another --data-dir.")
        return saved

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """What a folder was begun with; None where it is new, FolderError where it is a run's."""
        path = folder / FILE
        if not path.exists():
            if (folder / RUN_FILE).exists():
                raise FolderError(
                    f"{folder} is the folder of a run (it has {RUN_FILE}), and a service needs its own; choose "
                    "another --data-dir, with --from to continue with the learner of the run."
                )
            return None
        about = read_json(path)
        if about.get("format") != FORMAT:
            raise DataError(
                f"{path} has format {about.get('format')!r:.80}, and this version of iblurry reads {FORMAT}; use the "
                "version that wrote it, or start with another --data-dir."
            )
        try:
            return cls(**about["settings"] | {"image": tuple(about["settings"]["image"])})
        except MALFORMED as error:
            raise DataError(f"{path} is damaged ({reason(error)}); put back a good copy.") from error

    @classmethod
    def from_learner(cls, learner: Learner, **given: Any) -> Self:
        """Returns the settings of a service that goes on with a learner; `given` are threads and where it came from."""
        about = json.loads(json.dumps(learner.config.to_json()))  # tuples as lists, as they are read
        return cls(
            method=_method_key(about["method"]["name"]),
            recipe=about["method"],
            image=learner.config.image,
            max_classes=learner.config.rows,
            augment=about["augment"],
            **{name: about[name] for name in SAME},
            **given,
        )

    def save(self, folder: Path) -> None:
        text = json.dumps({"format": FORMAT, "settings": self.to_json()}, indent=2)
        write_file(folder / FILE, (text + "\n").encode())

    @property
    def pretrained(self) -> bool:
        """Whether the body starts with weights from elsewhere."""
        return is_pretrained(self.network, self.initialise)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"image": list(self.image)}

    def user_code(self) -> UserCode:
        """What a process of its own needs first of the user's: method and transforms, and the network's factory."""
        name = self.method.partition("@")[0].removesuffix("-released")
        code: list[Any] = [METHODS[name].build] if name in METHODS else []
        if self.recipe is not None:
            code = [type(component) for component in Method.from_json(self.recipe).components()]
        code += [type(transform) for transform in self._transforms() or ()]
        modules = sorted({thing.__module__ for thing in code if not is_own(thing)} - set(SCRIPTS))
        network = self.network.partition(":")[0]
        return modules, {network: find_network(network)} if "@" in network else {}

    def _transforms(self) -> tuple[Transform, ...] | None:
        return None if self.augment is None else tuple(Transform.from_json(one) for one in self.augment)

    def check(self) -> None:
        """InputError where a service could not start with these.

        Builds everything but the optimizer and the memory, whose size is compared with the machine's.
        """
        from iblurry.parts.memory import check_room

        try:
            row = self.build_context().memory.images[0].numel()
        except (RuntimeError, MemoryError) as error:  # torch's: the device is missing or has too little memory
            why = str(error).splitlines()[0].rstrip(".")
            remedy = "choose another device, smaller images or fewer classes"
            raise InputError(f"A learner with these settings cannot be built here ({why}); {remedy}.") from error
        if self.device == "cpu":
            check_room(self.memory, row)

    def build_method(self) -> Method:
        """InputError where it cannot serve: it needs task boundaries, or trains anew before it answers."""
        check_updates(self.updates_per_sample)
        hyperparameters = Hyperparameters(
            batch=self.batch, updates_per_sample=self.updates_per_sample, measure_every=self.measure_every
        )
        name, _, code = self.method.partition("@")
        if code and _method_key(name) != self.method:
            raise InputError(
                f"The method {name!r} was started with other code, {code}. Import that version (--import "
                "FILE.py), or choose another --data-dir."
            )
        built = method(name, hyperparameters) if self.recipe is None else Method.from_json(self.recipe)
        if not built.task_free or built.readout.refits:
            why = "trains a network for each query" if built.task_free else "needs the ends of tasks"
            raise InputError(f"{self.method} cannot serve: it {why}. Choose an online method, such as clib or er.")
        if self.recipe is None and built.admission.keeps_none:  # what was learnt lately can be shown and corrected
            built = dataclasses.replace(built, admission=RingBuffer())
        built.check_budget(self.memory)
        return built

    def learner_config(self) -> LearnerConfig:
        """What its learner is built from."""
        return LearnerConfig(
            method=self.build_method(),
            image=self.image,
            classes=self.max_classes,
            augment=self._transforms(),
            boundaries=False,
            **{name: getattr(self, name) for name in SAME},
        )

    def build_context(self) -> Context:
        """What predictions need of a learner: no optimizer, whose first import takes longer than all of this."""
        from iblurry.engine.devices import make_engine

        return self.learner_config().build_context(make_engine(self.device), capacity=1)

    def build_learner(self) -> Learner:
        """A learner that has learnt nothing yet."""
        from iblurry.engine.devices import make_engine
        from iblurry.learner.learner import Learner

        return Learner(self.learner_config(), engine=make_engine(self.device))


def bring(code: UserCode) -> None:
    """Takes over what `Settings.user_code` has found in another process."""
    modules, user_objects = code
    for module in modules:
        importlib.import_module(module)
    objects.receive(user_objects)


def _method_key(name: str) -> str:
    """The name of a method, with the hash of its code if it is a user's."""
    plain = name.removesuffix("-released")
    if plain not in METHODS or is_own(METHODS[plain].build):  # an unknown one is refused when it is built
        return name
    return f"{name}@{code_hash(METHODS[plain].build)}"
