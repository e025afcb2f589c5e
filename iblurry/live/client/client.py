"""A live service from Python: send samples, get predictions, watch it learn."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from iblurry.errors import InputError, ServiceError, counted
from iblurry.live.client.http_client import HttpClient, is_temporary, parse_events, retry
from iblurry.live.client.records import CorrectionReceipt, Prediction, Receipt, TopLabel
from iblurry.live.client.upload import (
    JSON_HEADERS,
    SAMPLES,
    Upload,
    check_upload,
    encode_body,
    encode_image,
    encoded_size,
    image_name,
    list_images,
    name_faulty,
    send_in_halves,
)
from iblurry.storage.files import replacing

if TYPE_CHECKING:
    from iblurry.live.client.upload import ImageLike, ImageSequence

POLL_SECONDS = 0.1
MODELS = (".pt2", ".onnx", ".safetensors")


class Client:
    """A live service from Python. Needs httpx (the extra `live`), and NumPy for arrays; threads may share it.

    Images are paths, the bytes of pictures, Pillow's images, uint8 arrays (C, H, W), or several of these: a list, or an
    array (N, C, H, W). Pictures are resized by the service; arrays must have its shape.

    Parameters
    ----------
    url : str
        Address of the service.
    token : str, optional
        The token of the service, if it needs one.
    timeout : float
        Seconds to wait for the next byte of a response.
    patience : float
        Seconds for which `learn` and `wait` retry while the service is busy or away.

    Raises
    ------
    ServiceError
        From every method, if the service refuses the request or does not answer.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        timeout: float = 30.0,
        patience: float = 300.0,
    ) -> None:
        self.patience = patience
        self._http = HttpClient(url, token=token, timeout=timeout)

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._http.url

    def learn(
        self, images: ImageLike | Sequence[ImageLike], labels: str | Sequence[str], key: str | None = None
    ) -> Receipt:
        """Send labelled images; returns when they are on the service's disk.

        Each is counted once, however often the connection breaks, because every request has an idempotency key.

        Parameters
        ----------
        images : image or sequence of images
            What to learn.
        labels : str or sequence of str
            One for each image, or one for all.
        key : str, optional
            With a key, the same call again (even from another process) changes nothing.
        """
        return self._send(images, labels, key)

    def hold_out(
        self, images: ImageLike | Sequence[ImageLike], labels: str | Sequence[str], key: str | None = None
    ) -> Receipt:
        """Send labelled images that are never learnt: the service predicts them as it learns.

        `held_out_accuracy` of `status` and `history` is the fraction of correct predictions. The newest are kept,
        as many as the memory can hold.

        Parameters
        ----------
        images : image or sequence of images
            What to predict.
        labels : str or sequence of str
            One for each image, or one for all; labels that were never learnt are not counted.
        key : str, optional
            As in `learn`.
        """
        return self._send(images, labels, key, held_out=True)

    def _send(
        self,
        images: ImageLike | Sequence[ImageLike],
        labels: str | Sequence[str],
        key: str | None,
        *,
        held_out: bool = False,
    ) -> Receipt:
        pictures = list_images(images)
        each = [labels] * len(pictures) if isinstance(labels, str) else list(labels)
        upload = self.upload(pictures, each, key, held_out=held_out)
        try:
            upload.send()
        except ServiceError as error:
            if not upload.accepted:
                raise
            verb = "is" if upload.accepted == 1 else "are"
            before = f"The first {upload.accepted:,} of {len(pictures):,} samples {verb} accepted."
            raise error.with_message(f"{error} {before}") from error
        return upload.receipt

    def upload(
        self,
        images: ImageSequence,
        labels: Sequence[str],
        key: str | None = None,
        *,
        size: int = SAMPLES,
        skip_bad: bool = False,
        held_out: bool = False,
    ) -> Upload:
        """An upload that is sent step by step, so that its progress can be shown.

        Parameters
        ----------
        images : ImageSequence
            Single images, each read when it is due.
        labels : sequence of str
            One for each image.
        key : str, optional
            As in `learn`.
        size : int
            Samples per request.
        skip_bad : bool
            Skip pictures that cannot be read, instead of failing.
        held_out : bool
            Never learn them, see `hold_out`.
        """
        labels = check_upload(len(images), labels, key)
        shape, queue_limit = retry(self.patience, lambda: self._image_and_queue)
        return Upload(
            self._http,
            images,
            labels,
            key=key or uuid.uuid4().hex,
            shape=shape,
            size=size,
            max_size=size if key else min(size, queue_limit),  # with a key, a larger one may have been accepted before
            patience=self.patience,
            skip_bad=skip_bad,
            path="/v1/held-out" if held_out else "/v1/learn",
        )

    def predict(self, images: ImageLike | Sequence[ImageLike], top: int = 5) -> list[Prediction]:
        """Predict each image with the newest model; learning goes on meanwhile.

        Parameters
        ----------
        images : image or sequence of images
            What to predict.
        top : int
            Labels for each image.
        """
        pictures = list_images(images)
        shape, _ = self._image_and_queue
        sent = range(0)

        def send(indices: range) -> list[Prediction]:
            nonlocal sent
            sent = indices
            body = encode_body("images", (encode_image(pictures[index], shape) for index in indices))
            answer = self._http.call("POST", f"/v1/predict?top={int(top)}", body, JSON_HEADERS)
            return [_prediction(each, answer) for each in answer["answers"]]

        predictions: list[Prediction] = []
        try:
            for first in range(0, len(pictures), SAMPLES):
                indices = range(first, min(first + SAMPLES, len(pictures)))
                for part in send_in_halves(indices, send, size=lambda i: encoded_size(pictures[i]), limit=SAMPLES):
                    predictions += part
        except ServiceError as error:
            raise name_faulty(error, sent, lambda index: image_name(pictures[index], index)) from error
        return predictions

    def label(self, ids: str | Sequence[str], labels: str | Sequence[str], key: str | None = None) -> Receipt:
        """Send labels of images that were predicted before; the service has the images, for a while.

        Parameters
        ----------
        ids : str or sequence of str
            The `Prediction.id` of each prediction.
        labels : str or sequence of str
            One for each id, or one for all.
        key : str, optional
            As in `learn`.
        """
        ids = [ids] if isinstance(ids, str) else list(ids)
        named = check_upload(len(ids), [labels] * len(ids) if isinstance(labels, str) else list(labels), key)
        entries = [{"id": one, "label": label} for one, label in zip(ids, named, strict=True)]
        answer = self._post("/v1/label", {"labels": entries}, key)
        repeated = answer["accepted"] if answer["repeated"] else 0
        return Receipt(answer["accepted"], answer["first"], answer["last"], repeated)

    def remove(self, sample: int, key: str | None = None) -> CorrectionReceipt:
        """Take a sample out of the memory, by its number."""
        return self.correct([{"action": "remove", "sample": sample}], key)

    def relabel(self, sample: int, label: str, key: str | None = None) -> CorrectionReceipt:
        """Give a sample of the memory another label, by its number; a new label makes a new class."""
        return self.correct([{"action": "relabel", "sample": sample, "label": label}], key)

    def rename_class(self, label: str, to: str, key: str | None = None) -> CorrectionReceipt:
        """Give a class a new name, which no other class has."""
        return self.correct([{"action": "rename", "label": label, "to": to}], key)

    def merge_class(self, label: str, to: str, key: str | None = None) -> CorrectionReceipt:
        """Merge a class into another."""
        return self.correct([{"action": "merge", "label": label, "to": to}], key)

    def delete_class(self, label: str, key: str | None = None) -> CorrectionReceipt:
        """Delete a class with its samples in the memory; it is never predicted again."""
        return self.correct([{"action": "delete", "label": label}], key)

    def correct(self, corrections: Sequence[dict[str, Any]], key: str | None = None) -> CorrectionReceipt:
        """Send several corrections, of which all are accepted, or none; they are on the disk when it returns.

        Parameters
        ----------
        corrections : sequence of dict
            As `POST /v1/correct` takes them: {"action": "remove", "sample": 17} and so on.
        key : str, optional
            As in `learn`.
        """
        answer = self._post("/v1/correct", {"corrections": list(corrections)}, key)
        return CorrectionReceipt(**{f.name: answer[f.name] for f in dataclasses.fields(CorrectionReceipt)})

    def _post(self, path: str, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        """Retried while the service is busy or away; counted once, because of its key."""
        headers = JSON_HEADERS | {"Idempotency-Key": key or uuid.uuid4().hex}
        raw = json.dumps(body).encode()
        return retry(self.patience, lambda: self._http.call("POST", path, raw, headers))

    def status(self) -> dict[str, Any]:
        """What it learns with, samples accepted and learnt, queue, accuracy, disk, and more."""
        return self._http.call("GET", "/v1/status")

    def classes(self) -> list[dict[str, Any]]:
        """Each class met so far: samples seen, in the memory, tested and right before they were learnt."""
        found: list[dict[str, Any]] = self._http.call("GET", "/v1/classes")["classes"]
        return found

    def memory(self, each: int = 20) -> dict[str, Any]:
        """Returns at most `each` samples of each class in the memory, the most important first, as thumbnails."""
        return self._http.call("GET", f"/v1/memory?each={int(each)}")

    def history(self) -> list[dict[str, Any]]:
        """Accuracy, learning rate and classes along the samples learnt."""
        found: list[dict[str, Any]] = self._http.call("GET", "/v1/history")["points"]
        return found

    def confusion(self) -> list[dict[str, Any]]:
        """How often recent samples of a `label` were given an `answer` before they were learnt; only what occurred."""
        found: list[dict[str, Any]] = self._http.call("GET", "/v1/confusion")["counts"]
        return found

    def download_model(self, path: str | os.PathLike[str]) -> int:
        """Write the current model to a file, whole or not at all; returns how many samples it has learnt.

        Parameters
        ----------
        path : path
            NAME.pt2 (torch.export, for `iblurry.load_exported`), NAME.onnx, or NAME.safetensors (for `Learner.load`).
        """
        place = Path(path)
        if place.suffix not in MODELS:
            raise InputError(f"{place} ends in {place.suffix!r}; end its name in {', '.join(MODELS)}.")
        with replacing(place) as temporary, temporary.open("wb") as file:
            headers = self._http.download(f"/v1/model?format={place.suffix[1:]}", file)
        return int(headers["X-Samples"])

    def ready(self) -> bool:
        """Whether it is reachable, learns and answers."""
        try:
            self._http.call("GET", "/readyz")
        except ServiceError as error:
            if not is_temporary(error):
                raise
            return False
        return True

    def wait(
        self,
        learnt: int | None = None,
        *,
        operation: int | None = None,
        timeout: float = 300.0,
        on_status: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Wait until the model that answers has learnt enough; returns the status.

        Parameters
        ----------
        learnt : int, optional
            Up to this sample; otherwise all that are accepted now.
        operation : int, optional
            Up to this correction: `CorrectionReceipt.operation`. Without either, all that were accepted.
        timeout : float
            Seconds to wait; it fails earlier if the service is away for longer than `patience`.
        on_status : callable, optional
            Called with every status on the way.
        """
        deadline = time.monotonic() + timeout
        goal, last = (0, operation) if learnt is None and operation is not None else (learnt, operation or 0)
        while True:
            status = retry(max(0.0, min(self.patience, deadline - time.monotonic())), self.status)
            if goal is None:
                goal, last = status["accepted"], max(last, status.get("operations", 0))
            if on_status is not None:
                on_status(status)
            applied = min(status.get("applied", last), status.get("model_operation", last))
            if min(status["learnt"], status["model"]) >= goal and applied >= last:
                return status
            if time.monotonic() > deadline:
                progress = f"The model has learnt {status['model']:,} of {counted(goal, 'sample')}."
                raise ServiceError(
                    f"{progress} {status['sentence']} Waited for {timeout:g} s; wait longer.", code="not_learnt_yet"
                )
            time.sleep(POLL_SECONDS)

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens, as it happens: ("status", ...), ("point", ...), ("class", ...); ends when the service does."""
        with closing(self._http.lines("/v1/events")) as lines:
            yield from parse_events(lines)

    def close(self) -> None:
        """Close its connections; `with Client(...) as client` does it."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _image_and_queue(self) -> tuple[tuple[int, ...], int]:
        """The shape of its images, and how many samples may wait."""
        status = self.status()
        return tuple(status["image"]), status["queue_limit"]


def _prediction(answer: dict[str, Any], whole: dict[str, Any]) -> Prediction:
    top = tuple(TopLabel(each["label"], each["probability"]) for each in answer["top"])
    more = answer.get("id", ""), answer.get("unknown", False), whole.get("threshold")
    return Prediction(answer["label"], answer["probability"], top, whole["model"], *more)
