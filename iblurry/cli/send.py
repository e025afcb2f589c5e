"""`iblurry send`: teaches a live service what is in folders of pictures or in a data set."""

from __future__ import annotations

import contextlib
import json
import math
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.calling import connected, service_options
from iblurry.cli.values import Whole
from iblurry.errors import DataError, InputError, ServiceError

if TYPE_CHECKING:
    from iblurry.cli.samples import Sample
    from iblurry.live.client import Client, Receipt

BATCH = 64  # samples of a request: short enough to see them go
LOOK = 0.5  # seconds between two looks at the queue


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="PLACE...")
@click.option("--label", metavar="TEXT", help="PLACEs are pictures, or folders of them, that all show this.")
@click.option("--shuffle/--in-order", default=True, help="By the seed, or as they lie.  [default: shuffle]")
@click.option("--seed", metavar="S", type=Whole(0), default=1, show_default=True, help="Of the order.")
@click.option("--limit", metavar="N", type=Whole(1), help="Send the first N of that order.  [default: all]")
@click.option("--resume-key", metavar="NAME", help="Under one NAME each is counted once, however often it is sent.")
@click.option("--wait/--no-wait", default=True, help="Until all is learnt, or until it is accepted.  [default: wait]")
@service_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of sentences.")
def send(
    places: tuple[str, ...],
    label: str | None,
    shuffle: bool,
    seed: int,
    limit: int | None,
    resume_key: str | None,
    wait: bool,
    url: str,
    token: str | None,
    as_json: bool,
) -> int:
    """Teach a live service the samples of PLACEs.

    A PLACE is a folder FOLDER/<class>/*.png (or .jpg, ...; FOLDER/train/<class>/* if that is there), an .npz file, or a
    data set such as digits, of which the training part is sent. Where the service is busy or being restarted, it waits.
    """
    from iblurry.cli.main import INTERRUPTED
    from iblurry.cli.samples import arrange, gather

    samples = arrange(gather(places, label), seed=seed if shuffle else None, limit=limit)
    with connected(url, token) as client:
        _check_shapes(samples, tuple(client.status()["image"]))
        sending = Sending(client, samples, resume_key or uuid.uuid4().hex)
        try:
            sending.send()
            status = sending.wait() if wait else client.status()
        except KeyboardInterrupt:
            click.echo(f"iblurry: Interrupted: {sending.so_far()}. {_again(sending, resume_key)}", err=True)
            return INTERRUPTED
        except ServiceError as error:
            sentence = f"{sending.explained(error)} So far, {sending.so_far()}."
            raise ServiceError(sentence, status=error.status, code=error.code) from error
    _report(sending.receipts, status, client.url, as_json=as_json)
    return 0


class Sending:
    """Samples on their way, batch by batch, each under a key from its name and place."""

    def __init__(self, client: Client, samples: Sequence[Sample], name: str) -> None:
        self.client, self.samples, self.name = client, samples, name
        self.receipts: list[Receipt] = []
        self.part: Sequence[Sample] = ()  # on the way now

    def send(self) -> None:
        """All of them, with a bar."""
        from iblurry.cli.watching import PAUSE, Watch
        from iblurry.live.client.caller import patiently

        spoke = looked = time.monotonic()
        with Watch() as watch:
            bar = watch.bars.add_task("Sending", total=len(self.samples), about="")
            for first in range(0, len(self.samples), BATCH):
                self._teach(first)
                watch.bars.update(bar, completed=self.accepted)
                now = time.monotonic()
                if watch.console.is_terminal and now - looked > LOOK:
                    looked = now
                    queue = patiently(self.client.patience, self.client.status)["queue"]
                    watch.bars.update(bar, about=f"{queue:,} wait to be learnt")
                elif not watch.console.is_terminal and now - spoke > PAUSE:
                    spoke = now
                    watch.say(f"{self.so_far()}.")

    def wait(self) -> dict[str, Any]:
        """Until they are learnt, with a bar."""
        from iblurry.cli.watching import Watch

        last = self.receipts[-1].last
        with Watch() as watch:
            bar = watch.bars.add_task("Learning", total=last, about="")

            def look(status: dict[str, Any]) -> None:
                watch.bars.update(bar, completed=status["model"])
                if status["state"] == "stalled":
                    raise ServiceError(status["sentence"], code="stalled")

            return self.client.wait(last, timeout=math.inf, seen=look)

    @property
    def accepted(self) -> int:
        return sum(receipt.accepted for receipt in self.receipts)

    def so_far(self) -> str:
        """How many are there for certain."""
        perhaps = f", and perhaps some of the next {len(self.part):,}" if self.part else ""
        return f"{self.accepted:,} of {len(self.samples):,} samples are accepted{perhaps}"

    def explained(self, error: ServiceError) -> str:
        """What the error says, or more where what was sent tells more."""
        from iblurry.data.sources.decoding import decode

        if error.code == "key_reused":
            return (
                f"The --resume-key {self.name} was used for other samples, or these in another order or number; "
                "send the same, or give another NAME."
            )
        pictures = [image for sample in self.part if isinstance(image := sample.image, Path)]
        for picture in pictures if error.status == 422 else []:
            try:
                decode(picture.read_bytes(), str(picture), size=None, channels=3)
            except DataError as unreadable:
                return str(unreadable)  # it names the picture, which the service does not know by name
        return str(error)

    def _teach(self, first: int) -> None:
        self.part = self.samples[first : first + BATCH]
        try:
            self._learn(first)
        except KeyboardInterrupt:
            # They may have arrived or not. Sent again under the same key they have, and count once.
            self.client.patience = 0
            with contextlib.suppress(ServiceError):  # they stay in doubt, and `so_far` says so
                self._learn(first)
            raise

    def _learn(self, first: int) -> None:
        images, labels = [sample.image for sample in self.part], [sample.label for sample in self.part]
        self.receipts.append(self.client.learn(images, labels, f"{self.name}:{first}"))
        self.part = ()


def _again(sending: Sending, resume_key: str | None) -> str:
    """What the same command would do now."""
    if sending.accepted == len(sending.samples):
        return "They will be learnt."
    if resume_key is not None:
        return "The same command sends the rest."
    return "The same command sends all of them again; with a --resume-key from the start, it sends the rest."


def _check_shapes(samples: Sequence[Sample], shape: tuple[int, ...]) -> None:
    for images in {id(sample.images): sample.images for sample in samples}.values():
        if not isinstance(images, list) and tuple(images.shape[1:]) != shape:
            have, take = ("x".join(map(str, sizes)) for sizes in (images.shape[1:], shape))
            raise InputError(
                f"These images are {have} and the service takes {take}; start one that takes them, in another folder: "
                f"`iblurry serve --image {have} --data-dir FOLDER`."
            )


def _report(receipts: Sequence[Receipt], status: dict[str, Any], url: str, *, as_json: bool) -> None:
    accepted, repeated = (sum(getattr(receipt, name) for receipt in receipts) for name in ("accepted", "repeated"))
    if as_json:
        told = {name: status[name] for name in ("learnt", "queue", "classes", "accuracy", "recent_accuracy")}
        numbers = {"first": receipts[0].first, "last": receipts[-1].last}
        click.echo(json.dumps({"url": url, "accepted": accepted, "repeated": repeated} | numbers | told, indent=2))
        return
    before = f", {repeated:,} of which were there before" if repeated else ""
    click.echo(f"{accepted:,} samples accepted{before}; {status['learnt']:,} learnt, {status['classes']:,} classes")
    if status["accuracy"] is not None:
        right = f"Right before they were learnt: {100 * status['accuracy']:.1f} % of all"
        if status["learnt"] > status["window"] and status["recent_accuracy"] is not None:
            right += f", {100 * status['recent_accuracy']:.1f} % of the last {status['window']:,}"
        click.echo(right)
