"""A live service from Python: teach it, ask it, look at it; needs the standard library alone."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from iblurry.errors import InputError, ServiceError
from iblurry.live.client.caller import Caller, passes, patiently
from iblurry.live.client.lesson import JSON, Lesson, Receipt
from iblurry.live.client.parcels import SAMPLES, body, in_halves, item, name_of, named, one_by_one, weight

if TYPE_CHECKING:
    from iblurry.live.client.lesson import Images
    from iblurry.live.client.parcels import Image

LOOK = 0.1  # seconds between two looks at what was learnt
KEY = 180  # characters; the service takes 200, and the place of a request comes behind it


class Guess(NamedTuple):
    """A label, and how probable the model finds it."""

    label: str
    probability: float


@dataclass(frozen=True)
class Answer:
    """What the model makes of one image."""

    label: str
    probability: float
    top: tuple[Guess, ...]  # the most probable first
    model: int  # samples it had learnt


class Client:
    """A service at an address.

    Images are paths, the bytes of pictures, arrays of bytes (C, H, W), or several of these: a list, or an array
    (N, C, H, W). Pictures are brought to the service's size there; arrays must have it.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        timeout: float = 30.0,  # seconds without a sign from the service in the middle of a call
        patience: float = 300.0,  # seconds for which `learn` and `wait` bear a service that is busy or away
    ) -> None:
        self.patience = patience
        self._caller = Caller(url, token=token, timeout=timeout)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._caller.url

    def learn(self, images: Image | Sequence[Image], labels: str | Sequence[str], key: str | None = None) -> Receipt:
        """Teaches images with a label each, or one for all; returns when they are on the service's disk.

        Each is counted once, however often the connection breaks, because every request has an idempotency key. With a
        `key` of yours that holds across calls, too: the same call made again changes nothing.
        """
        pictures = one_by_one(images)
        lesson = self.lesson(pictures, [labels] * len(pictures) if isinstance(labels, str) else list(labels), key)
        try:
            lesson.send()
        except ServiceError as error:
            raise _after(error, lesson.accepted, len(pictures)) from error
        return lesson.receipt

    def lesson(
        self,
        images: Images,
        labels: Sequence[str],
        key: str | None = None,
        *,
        size: int = SAMPLES,
        skip_bad: bool = False,
    ) -> Lesson:
        """The same for whoever wants to see it go, `size` samples at a time, or to leave out what cannot be read."""
        _check(len(images), labels, key)
        shape, queue = patiently(self.patience, lambda: self._form)
        return Lesson(
            lambda content, headers: self._post("/v1/learn", content, headers),
            images,
            labels,
            key=key or uuid.uuid4().hex,
            shape=shape,
            size=size,
            most=size if key else min(size, queue),  # more than may wait can only have come before, under that key
            patience=self.patience,
            skip_bad=skip_bad,
        )

    def predict(self, images: Image | Sequence[Image], top: int = 5) -> list[Answer]:
        """What the model makes of each image now; learning goes on meanwhile."""
        pictures = one_by_one(images)
        shape, _ = self._form
        sent = range(0)

        def send(places: range) -> dict[str, Any]:
            nonlocal sent
            sent = places
            items = (item(pictures[place], shape) for place in places)
            return self._post(f"/v1/predict?top={int(top)}", body("images", items), JSON)

        answers: list[Answer] = []
        try:
            for first in range(0, len(pictures), SAMPLES):
                places = range(first, min(first + SAMPLES, len(pictures)))
                for part in in_halves(places, send, weight=lambda place: weight(pictures[place]), most=SAMPLES):
                    answers += [_answer(about, part["model"]) for about in part["answers"]]
        except ServiceError as error:
            raise named(error, sent, lambda place: name_of(pictures[place], place)) from error
        return answers

    def status(self) -> dict[str, Any]:
        """How it stands: what it learns with, samples accepted and learnt, queue, accuracy, disk, and more."""
        return self._get("/v1/status")

    def classes(self) -> list[dict[str, Any]]:
        """Each class met so far: how often, how many are kept, how many were answered right before they were learnt."""
        found: list[dict[str, Any]] = self._get("/v1/classes")["classes"]
        return found

    def memory(self, each: int = 20) -> dict[str, Any]:
        """What is kept, class by class, the most important first, as small pictures."""
        return self._get(f"/v1/memory?each={int(each)}")

    def history(self) -> list[dict[str, Any]]:
        """Accuracy, learning rate and classes along the samples learnt."""
        found: list[dict[str, Any]] = self._get("/v1/history")["points"]
        return found

    def ready(self) -> bool:
        """Whether it is there, and takes samples and questions."""
        try:
            self._get("/readyz")
        except ServiceError as error:
            if not passes(error):
                raise
            return False
        return True

    def wait(
        self, learnt: int | None = None, *, timeout: float = 300.0, seen: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        """Until the model that answers has learnt all that is accepted now, or up to this sample; returns the status.

        `seen` is told every status on the way. A service that is away for longer than the `patience` is given up.
        """
        deadline = time.monotonic() + timeout
        goal = learnt
        while True:
            left = max(0.0, min(self.patience, deadline - time.monotonic()))
            status = patiently(left, self.status)
            goal = status["accepted"] if goal is None else goal
            if seen is not None:
                seen(status)
            if min(status["learnt"], status["model"]) >= goal:
                return status
            if time.monotonic() > deadline:
                how = f"The model has learnt {status['model']:,} of {goal:,} samples. {status['sentence']}"
                raise ServiceError(f"{how} Waited for {timeout:g} s; wait longer.", code="not_learnt_yet")
            time.sleep(LOOK)

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens, as it happens: ("status", ...), ("point", ...), ("class", ...); ends when the service does."""
        with self._caller.lines("/v1/events") as lines:
            yield from _events(lines)

    def close(self) -> None:
        """Closes its connections; `with Client(...) as client` does it by itself."""
        self._caller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _form(self) -> tuple[tuple[int, ...], int]:
        """The shape of its images, which never changes, and how many samples may wait, which seldom does."""
        status = self.status()
        return tuple(status["image"]), status["queue_limit"]

    def _get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._caller.call("GET", path)
        return answer

    def _post(self, path: str, content: bytes, headers: dict[str, str]) -> dict[str, Any]:
        answer: dict[str, Any] = self._caller.call("POST", path, content, headers)
        return answer


def _check(images: int, labels: Sequence[str], key: str | None) -> None:
    if not images:
        raise InputError("There is nothing to learn; give at least one image.")
    if len(labels) != images:
        raise InputError(f"There are {images} images and {len(labels)} labels; give each image one, or all one.")
    for label in labels:
        if not isinstance(label, str):
            raise InputError(f"The label {label!r} is no text; give labels as str, such as {str(label)!r}.")
        if any("\ud800" <= letter <= "\udfff" for letter in label):
            raise InputError(f"The label {label!r} is no text that UTF-8 can carry; give another.")
    if key is not None and not re.fullmatch(f"[!-~]{{1,{KEY}}}", key):
        raise InputError(f"The key {key!r} cannot be sent; give 1 to {KEY} visible ASCII characters.")


def _after(error: ServiceError, accepted: int, of: int) -> ServiceError:
    """The same error, which also says what came before it."""
    sentence = f"{error} The first {accepted:,} of {of:,} samples are accepted." if accepted else str(error)
    return ServiceError(sentence, status=error.status, code=error.code, retry_after=error.retry_after)


def _answer(about: dict[str, Any], model: int) -> Answer:
    top = tuple(Guess(guess["label"], guess["probability"]) for guess in about["top"])
    return Answer(about["label"], about["probability"], top, model)


def _events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Server-sent events: fields line by line, an empty line behind each event, a colon before what is said aside."""
    name, data = "message", ""
    for line in lines:
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data":
            data += value.strip()
        elif not line and data:
            yield name, json.loads(data)
            name, data = "message", ""
