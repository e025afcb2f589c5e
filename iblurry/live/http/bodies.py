"""The body of a request, in any of its forms, is read into labels and images."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from iblurry.data.images import Shape
from iblurry.errors import InputError
from iblurry.labels import HIDDEN, normalize_label
from iblurry.live.http.pictures import PictureDecoder, decode_base64, parse_array, unpack_pixels
from iblurry.live.messages import IncomingSample, Kind, Operation
from iblurry.live.quota import Limits, Refusal
from iblurry.untrusted import parse_json

JSON, RAW = "application/json", "application/octet-stream"
FORMS = ("image", "pixels", "array")
QUICK = 2**15  # bytes
ACTIONS: dict[str, tuple[str, ...]] = {  # corrections, and what each of them names
    "remove": ("sample",),
    "relabel": ("sample", "label"),
    "rename": ("label", "to"),
    "merge": ("label", "to"),
    "delete": ("label",),
}
LABEL = rf"[^{HIDDEN}]+"  # for the description: labels also have one form, see `labels`
KEY = r"[!-~]+"  # visible ASCII
NAME_END = re.compile(rb'"[ \t\r\n]*:')  # of every name in an object; a text that begins with a colon has it, too


class BodyReader:
    """Reads bodies; a large one takes a while, so it should be called in a thread.

    It stops at the first mistake: a library that collects all of them filled 1.7 GB over 16 MB of JSON.
    """

    def __init__(self, shape: Shape, limits: Limits) -> None:
        self.shape, self.limits = shape, limits

    def is_quick(self, content_type: str, raw: bytes) -> bool:
        """Whether it is read in less than a millisecond: a small body without pictures, which may unpack to much.

        A name with an escape in it might be `image`.
        """
        plain = media_type(content_type) == RAW or (
            media_type(content_type) == JSON and b'"image"' not in raw and b"\\" not in raw
        )
        return plain and len(raw) <= QUICK

    def read_samples(self, content_type: str, raw: bytes, label: str | None) -> list[IncomingSample]:
        """Labelled images; `label` is that of the address, for a body that has none."""
        if media_type(content_type) == JSON:
            if label is not None:
                raise Refusal(422, "bad_label", "In JSON each sample has a label; remove the label from the URL.")
            given = self._parse_images(raw, "samples", {"label", *FORMS})
            labels = []
            for place, entry in enumerate(given):
                with _entry(place, "label"):
                    labels.append(self.check_label(entry.get("label"), f"samples.{place}.label"))
            return [IncomingSample(*pair) for pair in zip(labels, self._images(given, "samples"), strict=True)]
        images = self._read_bare(content_type, raw)
        name = self.check_label(label, "The label in the URL (?label=...)")
        return [IncomingSample(name, image) for image in images]

    def read_images(self, content_type: str, raw: bytes) -> NDArray[np.uint8]:
        """Images to classify, (B, C, H, W)."""
        if media_type(content_type) == JSON:
            images = self._images(self._parse_images(raw, "images", set(FORMS)), "images")
        else:
            images = self._read_bare(content_type, raw)
        return np.stack(images)

    def read_corrections(self, content_type: str, raw: bytes) -> list[Operation]:
        """Corrections of samples and classes, in order."""
        self._check_json(content_type)
        corrections = []
        for place, entry in enumerate(self._parse(raw, "corrections")):
            with _entry(place):
                action = entry.get("action") if isinstance(entry, dict) else None
                names = ACTIONS.get(action, ()) if isinstance(action, str) else ()
                if not names or set(entry) != {"action", *names}:
                    shape = f"have its action and {', '.join(names)}" if names else f"have an action: {_ACTIONS}"
                    raise Refusal(422, "bad_body", f"corrections.{place} must {shape}, and nothing else.")
                number = entry.get("sample", 1)
                if type(number) is not int or number < 1:
                    message = f"corrections.{place}.sample is not a positive whole number; give the number of a sample."
                    raise Refusal(422, "bad_number", message)
            texts = dict.fromkeys(("label", "to"), "")
            for name in texts.keys() & set(names):
                with _entry(place, name):
                    texts[name] = self.check_label(entry[name], f"corrections.{place}.{name}")
            number = number if "sample" in names else 0
            corrections.append(Operation(cast(Kind, action), number, texts["label"], texts["to"]))
        return corrections

    def read_labels(self, content_type: str, raw: bytes) -> list[tuple[str, str]]:
        """Ids of predictions, and labels."""
        self._check_json(content_type)
        labels = []
        for place, entry in enumerate(self._parse(raw, "labels")):
            with _entry(place):
                if not isinstance(entry, dict) or set(entry) != {"id", "label"}:
                    raise Refusal(422, "bad_body", f"labels.{place} must have an id and a label, and nothing else.")
            with _entry(place, "id"):
                if not isinstance(entry["id"], str) or len(entry["id"]) > self.limits.key:
                    raise Refusal(422, "bad_id", f"labels.{place}.id is not an id from a response of /v1/predict.")
            with _entry(place, "label"):
                labels.append((entry["id"], self.check_label(entry["label"], f"labels.{place}.label")))
        return labels

    def check_label(self, label: object, where: str) -> str:
        """The label in its one form: see `normalize_label`."""
        if not isinstance(label, str):
            raise Refusal(422, "bad_label", f"{where} is missing or not a string; give one.")
        try:
            label = normalize_label(label)
        except InputError as error:
            raise Refusal(422, "bad_label", f"{where} {error}") from error
        if not 1 <= len(label) <= self.limits.label:
            message = f"{where} has {len(label)} characters; a label has from 1 to {self.limits.label}."
            raise Refusal(422, "bad_label", message)
        return label

    def check_key(self, key: str | None) -> str | None:
        """An idempotency key, exactly as it is given."""
        if key is not None and not (len(key) <= self.limits.key and re.fullmatch(KEY, key)):
            message = f"An Idempotency-Key has from 1 to {self.limits.key} visible ASCII characters; change it."
            raise Refusal(422, "bad_key", message)
        return key

    def _check_json(self, content_type: str) -> None:
        if media_type(content_type) != JSON:
            raise Refusal(415, "unknown_kind", f"This Content-Type is not supported; send {JSON}.")

    def _parse(self, raw: bytes, name: str) -> list[Any]:
        """The list under this one name of a JSON object."""
        most = self.limits.batch * (math.prod(self.shape) + 2 * self.limits.label + 8)
        if raw.count(b",") > most:  # two million empty lists took 3 s to parse
            raise Refusal(413, "too_many", f"The body has more than {most} values; send fewer images at once.")
        try:
            body = from_json(raw, allow_inf_nan=False)
        except ValueError as error:
            raise Refusal(400, "bad_json", f"The body is not JSON ({error}); correct it.") from error
        if not isinstance(body, dict) or set(body) != {name} or not isinstance(body[name], list) or not body[name]:
            raise Refusal(422, "bad_body", f'The body must be {{"{name}": [...]}} with at least one entry.')
        given: list[Any] = body[name]
        if len(NAME_END.findall(raw)) != 1 + sum(len(entry) for entry in given if isinstance(entry, dict)):
            try:
                parse_json(raw)  # ten times slower; it refuses a name that is given twice
            except InputError as error:
                raise Refusal(400, "bad_json", f"The body cannot be used ({error}); correct it.") from error
        if len(given) > self.limits.batch:
            message = f"There are {len(given)} {name}, a request may have {self.limits.batch}; send several requests."
            raise Refusal(413, "too_many", message)
        return given

    def _parse_images(self, raw: bytes, name: str, allowed: set[str]) -> list[dict[str, Any]]:
        given = self._parse(raw, name)
        for place, entry in enumerate(given):
            if not isinstance(entry, dict) or not entry.keys() <= allowed or sum(form in entry for form in FORMS) != 1:
                extra = "a label and " if "label" in allowed else ""
                message = f"{name}.{place} must have {extra}exactly one of image, pixels and array."
                with _entry(place):
                    raise Refusal(422, "bad_body", message)
        return given

    def _images(self, given: list[dict[str, Any]], name: str) -> list[NDArray[np.uint8]]:
        decoder = PictureDecoder(self.shape, self.limits)
        images = []
        for place, entry in enumerate(given):
            form = next(form for form in FORMS if form in entry)
            with _entry(place, form):
                images.append(self._image(entry, form, f"{name}.{place}.{form}", decoder))
        return images

    def _image(self, given: dict[str, Any], form: str, where: str, decoder: PictureDecoder) -> NDArray[np.uint8]:
        if form == "array":
            return parse_array(given[form], self.shape, where)
        if form == "image":
            return decoder.decode(decode_base64(given[form], where), where)
        images = unpack_pixels(decode_base64(given[form], where), self.shape, self.limits, where)
        if len(images) > 1:
            raise Refusal(422, "wrong_size", f"{where} holds {len(images)} images; give each image its own entry.")
        image: NDArray[np.uint8] = images[0]
        return image

    def _read_bare(self, content_type: str, raw: bytes) -> list[NDArray[np.uint8]]:
        if media_type(content_type).startswith("image/"):
            return [PictureDecoder(self.shape, self.limits).decode(raw, "The body")]
        if media_type(content_type) == RAW:
            return list(unpack_pixels(raw, self.shape, self.limits, "The body"))
        message = f"The Content-Type is none this service reads; send {JSON}, image/png or {RAW}."
        raise Refusal(415, "unknown_kind", message)


_ACTIONS = ", ".join(ACTIONS)


@contextmanager
def _entry(index: int, field: str | None = None) -> Iterator[None]:
    """Refusals inside are about this field of this entry."""
    try:
        yield
    except Refusal as refusal:
        if not refusal.is_whole:
            refusal.index, refusal.field = index, field
        raise


def media_type(content_type: str) -> str:
    """The media type without its parameters.

    >>> media_type("Application/JSON; charset=utf-8")
    'application/json'
    """
    return content_type.partition(";")[0].strip().lower()
