"""A lesson: samples on their way to a service, each request under a key from the place of its first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from iblurry.errors import DataError, ServiceError
from iblurry.live.client.caller import patiently
from iblurry.live.client.parcels import blamed, body, in_halves, item, name_of, named, weight

if TYPE_CHECKING:
    from iblurry.live.client.parcels import Image

JSON = {"Content-Type": "application/json"}
REFUSED = (400, 409, 413, 422, 429, 507)  # statuses that say: nothing of this request is there, nor was it before
UNCLEAR = ("strange_answer", "mistake")  # codes of a proxy's answer, and of a service that stumbled

Made = TypeVar("Made")


@dataclass(frozen=True)
class Receipt:
    """Samples that are on the service's disk and will be learnt."""

    accepted: int
    first: int  # number of the first one, from 1
    last: int  # of the last one; where others teach too, not all between are ours
    repeated: int  # so many of them were there already, under the same key


class Images(Protocol):
    """Paths, bytes of pictures and arrays (C, H, W), each made when it is due; DataError where one cannot be read."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Image: ...


class Lesson:
    """Samples by their places, of which as many go in one request as a fixed number, or a half of it, or a quarter...

    So the same samples under the same key meet the requests in which they were accepted, whatever the service took at a
    time then, and count once. One that is left out leaves its place empty.
    """

    def __init__(
        self,
        post: Callable[[bytes, dict[str, str]], dict[str, Any]],
        images: Images,
        labels: Sequence[str],
        *,
        key: str,
        shape: tuple[int, ...],  # of an array
        size: int,  # places of a request
        most: int,  # at most so many of them are tried at all
        patience: float,
        skip_bad: bool = False,  # leaves out pictures that cannot be read
    ) -> None:
        self._post, self._images, self._labels = post, images, labels
        self._key, self._shape, self._size, self._most = key, shape, size, most
        self._patience, self._skip_bad = patience, skip_bad
        self._due: dict[int, Image | None] = {}
        self._sent: list[int] = []  # places of the last request
        self._answers: list[dict[str, Any]] = []
        self.left_out: list[int] = []
        self.bad: int | None = None  # place of the picture that it failed on
        self.doubt = range(0)  # places of a request that got no answer

    def send(self, seen: Callable[[], None] | None = None) -> None:
        """All of them; `seen` is called after each request."""
        for first in range(0, len(self._images), self._size):
            places = range(first, min(first + self._size, len(self._images)))
            self._due = {place: self._read(place, partial(self._images.__getitem__, place)) for place in places}
            try:
                for _ in in_halves(places, self._request, weight=self._weight, most=self._most):
                    if seen is not None:
                        seen()
            except ServiceError as error:
                if (about := blamed(error)) is not None and about[1] == "image":
                    self.bad = self._sent[about[0]]
                raise named(error, self._sent, self._name) from error

    def settle(self) -> None:
        """Sends once more what got no answer: if it was there, it is known by its key, and if not, it is now."""
        self._patience = 0
        if self.doubt:
            self._request(self.doubt)

    @property
    def accepted(self) -> int:
        """For certain."""
        return sum(answer["accepted"] for answer in self._answers)

    @property
    def receipt(self) -> Receipt:
        """Of what was accepted so far, which must be something."""
        repeated = sum(answer["accepted"] for answer in self._answers if answer["repeated"])
        return Receipt(self.accepted, self._answers[0]["first"], self._answers[-1]["last"], repeated)

    def _request(self, places: range) -> None:
        items = {place: made for place in places if (made := self._item(place)) is not None}
        if not items:
            return
        # By its place alone: another request at the same place is another content, which the service refuses.
        headers = JSON | {"Idempotency-Key": f"{self._key}:{places.start}" if places.start else self._key}
        content = body("samples", items.values())
        unheard = self.doubt == places
        self._sent, self.doubt = list(items), places

        def once() -> dict[str, Any]:
            nonlocal unheard
            try:
                return self._post(content, headers)
            except ServiceError as error:
                unheard |= error.status is None or error.code in UNCLEAR
                raise

        try:
            answer = patiently(self._patience, once)
        except ServiceError as error:
            if error.status in REFUSED or not unheard:
                self.doubt = range(0)
            about = blamed(error)
            if about is None or about[1] != "image" or not self._skip_bad:
                raise
            self._leave_out(self._sent[about[0]])
            self._request(places)
        else:
            self.doubt = range(0)
            self._answers.append(answer)

    def _item(self, place: int) -> bytes | None:
        image = self._due[place]
        return None if image is None else self._read(place, lambda: item(image, self._shape, self._labels[place]))

    def _read(self, place: int, make: Callable[[], Made]) -> Made | None:
        """None where it cannot be and that is allowed."""
        try:
            return make()
        except DataError:
            if not self._skip_bad:
                self.bad = place
                raise
            self._leave_out(place)
            return None

    def _leave_out(self, place: int) -> None:
        self._due[place] = None
        self.left_out.append(place)

    def _weight(self, place: int) -> int:
        return weight(self._due[place], self._labels[place])

    def _name(self, place: int) -> str:
        return name_of(self._due[place], place)
