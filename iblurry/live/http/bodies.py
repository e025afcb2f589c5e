"""Request bodies: models of their JSON, and how pictures, raw bytes and JSON become samples, images and corrections."""

from __future__ import annotations

import binascii
import json
import math
import re
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from iblurry.data.images import Shape
from iblurry.data.labels import HIDDEN, normalize_label
from iblurry.errors import InputError
from iblurry.live.http.pictures import PictureDecoder, parse_array, unpack_pixels
from iblurry.live.messages import IncomingSample, Operation
from iblurry.live.quota import BATCH, KEY, LABEL, Limits, Refusal
from iblurry.storage.untrusted import parse_json

JSON, RAW = "application/json", "application/octet-stream"
FORMS = ("image", "pixels", "array")
QUICK = 2**15  # bytes
NAME_END = re.compile(rb'"\s*:')  # behind each name of JSON, and inside some texts
KEY_PATTERN = r"^[!-~]+$"  # visible ASCII
ONE_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mM4UaEBAAN0AWn1BwN7AAAAAElFTkSuQmCC"  # a PNG
CODES = {"label": "bad_label", "to": "bad_label", "id": "bad_id", "sample": "bad_number", "Idempotency-Key": "bad_key"}
FIELDS = (*FORMS, "label", "to", "id")  # that a refusal names
SHOWN = 40  # characters of a wrong value in a refusal


def known_label(label: object) -> str:
    """Return a label in its one form, see `normalize_label`; a Refusal says what is wrong with it."""
    if not isinstance(label, str):
        raise Refusal(422, "bad_label", f"is {_shown(label)}, not a string; give a label in quotes.")
    try:
        label = normalize_label(label)
    except InputError as error:
        raise Refusal(422, "bad_label", str(error)) from error
    if not 1 <= len(label) <= LABEL:
        raise Refusal(422, "bad_label", f"has {len(label)} characters; a label has from 1 to {LABEL}.")
    return label


def decode_base64(text: object) -> bytes:
    """Return the bytes of a text that is exactly as an encoder writes it, without spaces or a `data:` in front."""
    try:
        raw = binascii.a2b_base64(text) if isinstance(text, str) else b""
    except ValueError:  # too few characters, or not ASCII
        raw = b""
    if binascii.b2a_base64(raw, newline=False).decode("ascii") != text:  # decoders ignore invalid characters
        message = "is not base64; send the standard alphabet with its padding and nothing else."
        raise Refusal(422, "bad_base64", message)
    return raw


# The pattern names most of the characters that `normalize_label` refuses.
_LABEL_SCHEMA = {"type": "string", "minLength": 1, "maxLength": LABEL, "pattern": f"^[^{HIDDEN}]+$"}
Label = Annotated[str, PlainValidator(known_label), WithJsonSchema(_LABEL_SCHEMA | {"examples": ["cat"]})]
Base64 = Annotated[
    bytes, PlainValidator(decode_base64), WithJsonSchema({"type": "string", "contentEncoding": "base64"})
]
_PLANE = {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}}
Planes = Annotated[Any, WithJsonSchema({"type": "array", "items": _PLANE, "description": "Channels of rows."})]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class RequestImage(_Entry):
    """An image in exactly one of three forms."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [form]} for form in FORMS]})

    image: Base64 | None = Field(None, description="A PNG, JPEG, WebP, GIF or BMP, of any size.")
    pixels: Base64 | None = Field(None, description="Bytes of the service's size: channel by channel, row by row.")
    array: Planes | None = None

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if len(self.model_fields_set & {*FORMS}) != 1:
            raise Refusal(422, "bad_body", "must have exactly one of image, pixels and array.")
        return self

    @property
    def form(self) -> str:
        """The name of the form."""
        (found,) = self.model_fields_set & {*FORMS}
        return found

    def decode(self, decoder: PictureDecoder, where: str) -> NDArray[np.uint8]:
        """Return (C, H, W)."""
        if self.form == "array":
            return parse_array(self.array, decoder.shape, where)
        if self.form == "image":
            return decoder.decode(self.image or b"", where)
        images = unpack_pixels(self.pixels or b"", decoder.shape, where)
        if len(images) > 1:
            raise Refusal(422, "wrong_size", f"{where} holds {len(images)} images; give each image its own entry.")
        image: NDArray[np.uint8] = images[0]
        return image


class RequestSample(RequestImage):
    """An image in exactly one of three forms, and what it shows."""

    label: Label


class Remove(_Entry):
    """Take a sample out of the memory."""

    action: Literal["remove"]
    sample: int = Field(ge=1, examples=[17])


class Relabel(_Entry):
    """Give a sample of the memory another label."""

    action: Literal["relabel"]
    sample: int = Field(ge=1, examples=[18])
    label: Label


class Rename(_Entry):
    """Give a class another name."""

    action: Literal["rename"]
    label: Label
    to: Label


class Merge(_Entry):
    """Make a class a part of another."""

    action: Literal["merge"]
    label: Label
    to: Label


class Delete(_Entry):
    """Delete a class with its samples in the memory."""

    action: Literal["delete"]
    label: Label


Correction = Annotated[Remove | Relabel | Rename | Merge | Delete, Field(discriminator="action")]


class LateLabel(_Entry):
    """What an image that was predicted before shows."""

    id: str = Field(max_length=KEY, examples=["5f2a9c01-17"])
    label: Label


# A list is refused at its first mistake: all mistakes of 16 MB of JSON filled 1.7 GB.
class LearnRequest(_Entry):
    """Labelled images."""

    samples: Annotated[list[RequestSample], FailFast()] = Field(min_length=1, max_length=BATCH)


class PredictRequest(_Entry):
    """Images to classify."""

    images: Annotated[list[RequestImage], FailFast()] = Field(min_length=1, max_length=BATCH)


class LabelRequest(_Entry):
    """Labels of images that were predicted before."""

    labels: Annotated[list[LateLabel], FailFast()] = Field(min_length=1, max_length=BATCH)


class CorrectRequest(_Entry):
    """Corrections of samples and classes, in order."""

    corrections: Annotated[list[Correction], FailFast()] = Field(min_length=1, max_length=BATCH)


class BodyReader:
    """Reads bodies; a large one takes a while, so it should be called in a thread."""

    def __init__(self, shape: Shape, limits: Limits) -> None:
        self.shape, self.limits = shape, limits

    def is_quick(self, content_type: str, raw: bytes) -> bool:
        """Whether it is read in less than a millisecond: a small body without pictures, which may unpack to much.

        A name with an escape in it might be `image`.
        """
        is_json = media_type(content_type) == JSON and b'"image"' not in raw and b"\\" not in raw
        return len(raw) <= QUICK and (is_json or media_type(content_type) == RAW)

    def read_samples(self, content_type: str, raw: bytes, label: str | None) -> list[IncomingSample]:
        """Return labelled images; `label` is that of the address, for a body that has none."""
        entries, images = self._read(LearnRequest, content_type, raw)
        if entries:
            if label is not None:
                raise Refusal(422, "bad_label", "In JSON each sample has a label; remove the label from the URL.")
            return [IncomingSample(entry.label, image) for entry, image in zip(entries, images, strict=True)]
        if label is None:
            raise Refusal(422, "bad_label", "The label is missing in the URL; add ?label=... to it.")
        return [IncomingSample(label, image) for image in images]

    def read_images(self, content_type: str, raw: bytes) -> NDArray[np.uint8]:
        """Return images to classify, (B, C, H, W)."""
        return np.stack(self._read(PredictRequest, content_type, raw)[1])

    def read_corrections(self, content_type: str, raw: bytes) -> list[Operation]:
        """Return corrections of samples and classes, in order."""
        given = (one.model_dump() for one in self._parse(CorrectRequest, content_type, raw))
        return [Operation(o["action"], o.get("sample", 0), o.get("label", ""), o.get("to", "")) for o in given]

    def read_labels(self, content_type: str, raw: bytes) -> list[tuple[str, str]]:
        """Return ids of predictions, and labels."""
        return [(one.id, one.label) for one in self._parse(LabelRequest, content_type, raw)]

    def _read(self, model: type[BaseModel], content_type: str, raw: bytes) -> tuple[list[Any], list[NDArray[np.uint8]]]:
        """The entries of JSON, none where the body is a picture or raw bytes, and the images."""
        kind, decoder = media_type(content_type), PictureDecoder(self.shape, self.limits)
        if kind.startswith("image/"):
            return [], [decoder.decode(raw, "The body")]
        if kind == RAW:
            return [], list(unpack_pixels(raw, self.shape, "The body"))
        (name,), images = model.model_fields, []
        entries = self._parse(model, content_type, raw, known=f"{JSON}, image/png or {RAW}")
        for place, entry in enumerate(entries):
            try:
                images.append(entry.decode(decoder, f"{name}.{place}.{entry.form}"))
            except Refusal as refusal:
                if not refusal.is_whole:
                    refusal.index, refusal.field = place, entry.form
                raise
        return entries, images

    def _parse(self, model: type[BaseModel], content_type: str, raw: bytes, *, known: str = JSON) -> list[Any]:
        """The entries of JSON of this model."""
        if media_type(content_type) != JSON:
            message = f"The Content-Type {content_type[:SHOWN]!a} is not supported; send {known}."
            raise Refusal(415, "unknown_kind", message)
        most = BATCH * (math.prod(self.shape) + 2 * LABEL + 8)
        if raw.count(b",") > most:  # two million empty lists took 3 s to parse
            raise Refusal(413, "too_many", f"The body has more than {most} values; send fewer images at once.")
        try:
            body = model.model_validate_json(raw)
        except ValidationError as error:
            raise refusal_of(error.errors(include_url=False)[0]) from None
        entries: list[Any]
        (entries,) = vars(body).values()
        if len(NAME_END.findall(raw)) != 1 + sum(len(entry.model_fields_set) for entry in entries):
            try:
                parse_json(raw)  # ten times slower; it refuses a name that is given twice
            except InputError as error:
                raise Refusal(400, "bad_json", f"The body cannot be used ({error}); correct it.") from error
        return entries


def refusal_of(error: Any) -> Refusal:
    """Return one of pydantic's mistakes as a refusal, whose sentence begins with the place and shows the value."""
    place, ctx = list(error["loc"]), error.get("ctx", {})
    if error["type"] == "json_invalid":
        return Refusal(400, "bad_json", f"The body is not JSON ({ctx['error']}); correct it.")
    if place[:1] in (["query"], ["header"], ["path"]):
        place, default = place[1:], "bad_parameter"
    else:
        default = "bad_body"
        if place[:1] == ["corrections"]:
            del place[2:3]  # the action, which is not a part of the place
    where = ".".join(map(str, place)) or "The body"
    last = str(place[-1]) if place else ""
    if error["type"] == "too_long" and len(place) == 1:
        return Refusal(
            413, "too_many", f"{where}: {ctx['actual_length']} are more than {BATCH}; send several requests."
        )
    if isinstance(cause := ctx.get("error"), Refusal):
        refusal = Refusal(cause.status, cause.code, f"{where} {cause.message}")
    else:
        code = CODES.get(last, default) if error["type"] != "extra_forbidden" else default
        given = "" if error["type"] == "missing" else f", not {_shown(error['input'])}"
        refusal = Refusal(422, code, f"{where}: {error['msg']}{given}.")
    if len(place) > 1:
        refusal.index = place[1]
        refusal.field = last if last in FIELDS and error["type"] != "extra_forbidden" else None
    return refusal


def _shown(value: object) -> str:
    """Return the beginning of a wrong value as JSON."""
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def media_type(content_type: str) -> str:
    """Return the media type without its parameters.

    >>> media_type("Application/JSON; charset=utf-8")
    'application/json'
    """
    return content_type.partition(";")[0].strip().lower()
