"""The body of a request, in any of its forms, becomes labels and images."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from iblurry.data.images import Shape
from iblurry.live.exchange import Labelled
from iblurry.live.http.pictures import Pictures, arrange, unbase64, unpack
from iblurry.live.limits import Limits
from iblurry.live.refusal import Refusal

JSON, RAW = "application/json", "application/octet-stream"
FORMS = ("image", "pixels", "array")
LABEL = r"[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+"  # no control characters, no other ends of lines
HALVES = r"[\ud800-\udfff]"  # of a character: JSON can spell them, UTF-8 cannot
KEY = r"[!-~]+"  # visible ASCII


class Reader:
    """Reads bodies for a service of this shape; a large one takes a while, so this is work for a thread.

    It stops at the first thing that is wrong: a library that collects all of them filled 1.7 GB over 16 MB of JSON.
    """

    def __init__(self, shape: Shape, limits: Limits) -> None:
        self.shape, self.limits = shape, limits

    def samples(self, kind: str, raw: bytes, label: str | None) -> list[Labelled]:
        """What is to be learnt; `label` is for a body that is pixels alone."""
        if media(kind) == JSON:
            if label is not None:
                raise Refusal(422, "bad_label", "In JSON each sample has a label; leave the one in the address out.")
            given = self._parse(raw, "samples", {"label", *FORMS})
            labels = [self.label(one.get("label"), f"samples.{place}.label") for place, one in enumerate(given)]
            return [Labelled(*pair) for pair in zip(labels, self._images(given, "samples"), strict=True)]
        images = self._bare(kind, raw)
        name = self.label(label, "The label in the address (?label=...)")
        return [Labelled(name, image) for image in images]

    def questions(self, kind: str, raw: bytes) -> NDArray[np.uint8]:
        """(B, C, H, W): what is asked about."""
        if media(kind) == JSON:
            images = self._images(self._parse(raw, "images", set(FORMS)), "images")
        else:
            images = self._bare(kind, raw)
        return np.stack(images)

    def label(self, label: object, where: str) -> str:
        """A label is taken exactly as it is given."""
        if not isinstance(label, str):
            raise Refusal(422, "bad_label", f"{where} is missing or no text; give one.")
        if not 1 <= len(label) <= self.limits.label:
            raise Refusal(
                422, "bad_label", f"{where} has {len(label)} characters; a label has from 1 to {self.limits.label}."
            )
        if not re.fullmatch(LABEL, label) or re.search(HALVES, label):
            raise Refusal(422, "bad_label", f"{where} has control characters or broken Unicode; leave them out.")
        return label

    def key(self, key: str | None) -> str | None:
        """An idempotency key."""
        if key is not None and not (len(key) <= self.limits.key and re.fullmatch(KEY, key)):
            raise Refusal(
                422,
                "bad_key",
                f"An Idempotency-Key has from 1 to {self.limits.key} visible ASCII characters; change it.",
            )
        return key

    def _parse(self, raw: bytes, name: str, allowed: set[str]) -> list[dict[str, Any]]:
        self._few_values(raw)
        try:
            body = from_json(raw, allow_inf_nan=False)
        except ValueError as error:
            raise Refusal(400, "bad_json", f"The body is not JSON ({error}); correct it.") from error
        if not isinstance(body, dict) or set(body) != {name} or not isinstance(body[name], list) or not body[name]:
            raise Refusal(422, "bad_body", f'The body must be {{"{name}": [...]}} with at least one entry.')
        given: list[Any] = body[name]
        if len(given) > self.limits.batch:
            raise Refusal(
                413, "too_many", f"There are {len(given)} {name}, a request may have {self.limits.batch}; send several."
            )
        for place, one in enumerate(given):
            if not isinstance(one, dict) or not one.keys() <= allowed or sum(form in one for form in FORMS) != 1:
                extra = "a label and " if "label" in allowed else ""
                raise Refusal(
                    422, "bad_body", f"{name}.{place} must have {extra}exactly one of image, pixels and array."
                )
        return given

    def _few_values(self, raw: bytes) -> None:
        """Refuses what is more than the largest batch, before it is parsed: two million empty lists took 3 s of it."""
        most = self.limits.batch * (math.prod(self.shape) + 2 * self.limits.label + 8)
        if raw.count(b",") > most:
            raise Refusal(
                413,
                "too_many",
                f"The body has more than {most} values; send at most {self.limits.batch} images at once.",
            )

    def _images(self, given: list[dict[str, Any]], name: str) -> list[NDArray[np.uint8]]:
        pictures = Pictures(self.shape, self.limits)
        return [self._image(one, f"{name}.{place}", pictures) for place, one in enumerate(given)]

    def _image(self, given: dict[str, Any], at: str, pictures: Pictures) -> NDArray[np.uint8]:
        form = next(form for form in FORMS if form in given)
        where = f"{at}.{form}"
        if form == "array":
            return arrange(given[form], self.shape, where)
        if form == "image":
            return pictures.decode(unbase64(given[form], where), where)
        images = unpack(unbase64(given[form], where), self.shape, self.limits, where)
        if len(images) > 1:
            raise Refusal(422, "wrong_size", f"{where} holds {len(images)} images; give each an entry of its own.")
        image: NDArray[np.uint8] = images[0]
        return image

    def _bare(self, kind: str, raw: bytes) -> list[NDArray[np.uint8]]:
        if media(kind).startswith("image/"):
            return [Pictures(self.shape, self.limits).decode(raw, "The body")]
        if media(kind) == RAW:
            return list(unpack(raw, self.shape, self.limits, "The body"))
        raise Refusal(
            415, "unknown_kind", f"The Content-Type is none this service reads; send {JSON}, image/png or {RAW}."
        )


def media(kind: str) -> str:
    """The media type without its parameters.

    >>> media("Application/JSON; charset=utf-8")
    'application/json'
    """
    return kind.partition(";")[0].strip().lower()
