"""What the tests share: golden numbers, one torch thread, a small workbench, and a browser."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

os.environ["OMP_NUM_THREADS"] = "1"  # thread count changes last bits; also for the processes tests start
CHECKOUT = Path(__file__).parent.parent
settings.register_profile("tests", deadline=None)  # how long an example takes is the machine's load
settings.load_profile("tests")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for `make test &`; children inherit that


@pytest.hookimpl(tryfirst=True)  # before cases are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with `pytest.mark.quick("case", ...)` every case that is not named there is slow."""
    missing: dict[str, set[str]] = {}
    for item in items:
        if (mark := item.get_closest_marker("quick")) is not None:
            case = item.callspec.id  # type: ignore[attr-defined]
            missing.setdefault(item.nodeid.removesuffix(f"[{case}]"), set(mark.args)).discard(case)
            if case not in mark.args:
                item.add_marker("slow")
    unknown = {test: cases for test, cases in missing.items() if cases}
    if unknown and not any("::" in given for given in config.args):  # else not all cases were collected
        raise pytest.UsageError(f"These quick cases do not exist: {unknown}.")


@pytest.fixture(scope="session", autouse=True)
def _one_thread_and_little_to_collect() -> None:
    """A collection looks at what tests made and not at all of torch, which is 5 % of their time."""
    import torch._dynamo  # exports and optimizers of users do it at their first use

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_in_the_checkout() -> Iterator[None]:
    """A run without `out` in a test would lie among the runs of whoever tests, in `iblurry show`."""
    before = set(CHECKOUT.glob("runs/*"))
    yield
    left = sorted(path.name for path in set(CHECKOUT.glob("runs/*")) - before)
    assert not left, f"A test left {', '.join(left)} in {CHECKOUT / 'runs'}; give it tmp_path as out."


@pytest.fixture(autouse=True)
def _own_components_leave(tmp_path_factory):
    """Components, networks and methods that a test defines, and modules that it writes, are known in that test only."""
    from iblurry.components.code_hash import is_own
    from iblurry.components.component import Component
    from iblurry.methods import METHODS
    from iblurry.network.registry import NETWORKS

    modules, folders, written = set(sys.modules), [*sys.path], tmp_path_factory.getbasetemp()
    before = {id(registry): dict(registry) for registry in (NETWORKS, METHODS, *Component._known.values())}
    yield
    for registry in (NETWORKS, METHODS, *Component._known.values()):
        known = before.get(id(registry), {})
        for name in [name for name, thing in registry.items() if name not in known and not is_own(_code(thing))]:
            del registry[name]  # modules of the package may have been imported meanwhile
        registry.update(known)
    sys.path[:] = folders
    for name in set(sys.modules) - modules:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(written):
            del sys.modules[name]


def _code(thing):
    """The class or function behind an entry of a registry: a recipe's is what builds it."""
    return getattr(thing, "build", thing) if not isinstance(thing, type) else thing


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.fixture
def every_sample(monkeypatch):
    """A run calls on_progress at every sample."""
    monkeypatch.setattr("iblurry.experiment.run_loop.PROGRESS_EVERY", 1)


@pytest.fixture
def make_context():
    """A workbench with a memory of `capacity` 1x8x8 images and a small network of `rows` classes."""
    from iblurry.augment.pipeline import Augment, Pipeline
    from iblurry.engine.eager import Eager
    from iblurry.network.build import build, open_row
    from iblurry.parts.context import Context
    from iblurry.parts.memory import Memory
    from iblurry.rng import Rng

    def make(capacity: int, rows: int = 4, seed: int = 1, *, body: str = "mlp") -> Context:
        image, rng = (1, 8, 8), Rng(seed)
        network = build(body, image, rows, rng=rng).eval()
        for row in range(rows):
            open_row(network, row, rng)
        engine = Eager()
        pipeline = Pipeline(Augment(pad=1), shape=image, mean=(0.5,), std=(0.25,))
        both = {"rng": rng, "engine": engine}
        return Context(
            network=engine.setup(network).eval(),
            memory=Memory(capacity, image),
            pipeline=pipeline,
            budget=capacity,
            **both,
        )

    return make


@pytest.fixture
def offer():
    """Offers a sample of this class to a part's memory, the way the learner does; returns its row."""
    import torch

    from iblurry.parts.memory import Sample

    def give(admission: Any, label: int, value: int = 0) -> int:
        memory = admission.context.memory
        rng = np.random.default_rng(1000 * label + value)
        pixels = torch.from_numpy(rng.integers(0, 256, (1, 1, 8, 8), dtype=np.uint8))
        one = Sample(pixels, torch.tensor([label]), label)
        memory.offered += 1
        admission.on_offered(one)
        return int(admission.admit(one))

    return give


@pytest.fixture(scope="session")
def samples() -> list[tuple[np.ndarray, str]]:
    """Sixty images of five classes; the classes arrive one after the other and then mix."""
    from iblurry.data.sources.shapes import shapes

    data = shapes(classes=5, train=30, test=4, size=8, channels=1, seed=3)
    by_class = {c: list(np.flatnonzero(data.train.labels == c)) for c in range(5)}
    wanted = (
        [0] * 7 + [1, 0, 1, 1, 0, 2] + [2, 1, 0, 2, 2, 1] * 3 + [3] + [3, 0, 2, 1] * 5 + [4, 4, 0, 3, 4, 1, 2, 4, 4]
    )
    wanted = (wanted + [0, 1, 2, 3, 4] * 3)[:60]
    return [(data.train.images[by_class[c].pop()], data.classes[c]) for c in wanted]


@pytest.fixture(scope="session")
def questions() -> np.ndarray:
    from iblurry.data.sources.shapes import shapes

    return shapes(classes=5, train=1, test=8, size=8, channels=1, seed=4).test.images


CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")  # not longer: while it is open no test can run an event loop of its own
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install '.[browser]'")
    program = os.environ.get("IBLURRY_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.skip(f"there is no Chromium: install one of {', '.join(CHROMIUM)}, or name it in IBLURRY_CHROMIUM")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()
