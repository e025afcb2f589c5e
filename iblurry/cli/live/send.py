"""`iblurry live send`: sends the pictures of folders, or a data set, to a live service."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.live.connect import connect, service_options, wait_for_status
from iblurry.cli.options import import_option, json_option
from iblurry.errors import DataError, IblurryError, InputError, ServiceError, counted

if TYPE_CHECKING:
    from iblurry.cli.live.samples import LabelledFile
    from iblurry.launch.progress import ProgressDisplay
    from iblurry.live.client import Client, Receipt

BATCH = 64  # samples of a request: few enough for a bar that moves
POLL_SECONDS = 0.5  # between two looks at the queue
NAMED = 3  # pictures that were skipped


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="PLACE...")
@click.option("--label", metavar="TEXT", help="PLACEs are pictures, or folders of them, that all show this.")
@click.option("--shuffle/--in-order", default=True, help="In random order, or in the order of the files.")
@click.option("--seed", metavar="S", type=click.IntRange(0), default=1, help="Seed of the order.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Send the first N of that order.  [default: all]")
@click.option("--resume-key", metavar="NAME", help="With one NAME, a sample sent several times is counted once.")
@click.option("--skip-bad", is_flag=True, help="Leave out pictures that cannot be read, and list them at the end.")
@click.option("--held-out", is_flag=True, help="Do not learn them: the service tests itself on them as it learns.")
@click.option("--wait/--no-wait", default=True, help="Wait until all is learnt, or only until it is accepted.")
@service_options
@json_option
@import_option
def send(
    places: tuple[str, ...],
    label: str | None,
    shuffle: bool,
    seed: int,
    limit: int | None,
    resume_key: str | None,
    skip_bad: bool,
    held_out: bool,
    wait: bool,
    url: str,
    token: str | None,
    as_json: bool,
) -> int:
    """Send the samples of PLACEs to a live service, which learns them.

    A PLACE is a folder FOLDER/<class>/*.png (or .jpg, ...; FOLDER/train/<class>/* if that is there), an .npz file, or a
    data set such as digits, of which the training part is sent (the test part with --held-out). Where the service is
    busy or being restarted, it waits.
    """
    from iblurry.cli.live.samples import arrange, find_samples
    from iblurry.cli.verbs import INTERRUPTED

    found = find_samples(places, label, part="test" if held_out else "train")
    samples = arrange(found, seed=seed if shuffle else None, limit=limit)
    with connect(url, token) as client:
        shape = tuple(wait_for_status(client)["image"])
        _check_shapes(samples, shape)
        sender = Sender(client, samples, resume_key, shape=shape, skip_bad=skip_bad, held_out=held_out)
        try:
            sender.send()
            status = sender.wait() if wait else client.status()
        except KeyboardInterrupt:
            click.echo(f"iblurry: Interrupted: {sender.progress()}. {sender.what_next()}", err=True)
            return INTERRUPTED
        except ServiceError as error:
            raise error.with_message(sender.explain(error)) from error
        except DataError as error:
            raise DataError(sender.explain(error)) from error
    _report(sender.upload.receipt, sender.skipped, status, client.url, as_json=as_json)
    return 0


class Sender:
    """The upload of one command, with progress bars and an account of what was accepted."""

    def __init__(
        self,
        client: Client,
        samples: Sequence[LabelledFile],
        key: str | None,
        *,
        shape: tuple[int, ...],
        skip_bad: bool,
        held_out: bool,
    ) -> None:
        from iblurry.cli.live.samples import FittedImages

        self.client, self.samples, self.key = client, samples, key
        labels, images = [sample.label for sample in samples], FittedImages(samples, shape)
        self.upload = client.upload(images, labels, key, size=BATCH, skip_bad=skip_bad, held_out=held_out)

    def send(self) -> None:
        """Send all of them."""
        from iblurry.launch.progress import ProgressDisplay

        with ProgressDisplay() as display:
            try:
                self.upload.send(self._progress_callback(display))
            except KeyboardInterrupt:
                with contextlib.suppress(IblurryError):  # they stay unconfirmed, and `progress` says so
                    self.upload.confirm()
                raise
        if not self.upload.accepted:
            raise InputError(
                f"None of the {len(self.samples):,} pictures can be read, {self.skipped[0]} for one; give others."
            )

    def wait(self) -> dict[str, Any]:
        """Wait until they are learnt, or asked about."""
        from iblurry.launch.progress import ProgressDisplay

        last, operation = self.upload.receipt.last, self.upload.receipt.operation
        with ProgressDisplay() as display:
            bar = display.bars.add_task("Asking" if operation else "Learning", total=last or None, about="")

            def on_status(status: dict[str, Any]) -> None:
                display.bars.update(bar, completed=status["model"])
                if status["state"] == "stalled":
                    raise ServiceError(status["sentence"], code="stalled")

            return self.client.wait(last, operation=operation, timeout=math.inf, on_status=on_status)

    @property
    def skipped(self) -> list[str]:
        """Names of pictures that cannot be read."""
        return [self.samples[index].name for index in self.upload.skipped]

    @property
    def is_sent(self) -> bool:
        return self.upload.accepted + len(self.upload.skipped) == len(self.samples)

    def progress(self) -> str:
        """How many are accepted."""
        unconfirmed = len(self.upload.unconfirmed)
        perhaps = f", and perhaps some of the next {unconfirmed:,}" if unconfirmed else ""
        verb = "is" if self.upload.accepted == 1 else "are"
        return f"{self.upload.accepted:,} of {counted(len(self.samples), 'sample')} {verb} accepted{perhaps}"

    def explain(self, error: IblurryError) -> str:
        """The error's message, what to do about it on the command line, and how far the upload came."""
        from iblurry.live.client import is_temporary

        message, then = str(error), ""
        if isinstance(error, ServiceError) and error.code == "key_reused":
            message = (
                f"The --resume-key {self.key} was used for other samples, or these in another order or number; "
                "send the same, or give another NAME."
            )
        elif self.upload.failed_at is not None:
            message += " Replace it, or give --skip-bad to leave out what cannot be read."
        elif self.is_sent and isinstance(error, ServiceError) and is_temporary(error):
            then = "; they will be learnt when the service runs again"
        return f"{message} So far, {self.progress()}{then}."

    def what_next(self) -> str:
        """What the same command would do now."""
        if self.is_sent:
            return "They will be learnt."
        if self.key is not None:
            return "The same command sends the rest."
        return "The same command sends all of them again; with a --resume-key from the start, it sends the rest."

    def _progress_callback(self, display: ProgressDisplay) -> Callable[[], None]:
        """Moves the bar, and prints a line now and then where there is no terminal."""
        from iblurry.launch.progress import PAUSE
        from iblurry.live.client import retry

        bar = display.bars.add_task("Sending", total=len(self.samples), about="")
        printed_at = polled_at = time.monotonic()

        def on_request() -> None:
            nonlocal printed_at, polled_at
            now = time.monotonic()
            display.bars.update(bar, completed=self.upload.accepted + len(self.upload.skipped))
            if display.console.is_terminal and now - polled_at > POLL_SECONDS:
                polled_at = now
                queue = retry(self.client.patience, self.client.status)["queue"]
                display.bars.update(bar, about=f"{queue:,} wait to be learnt")
            elif not display.console.is_terminal and now - printed_at > PAUSE:
                printed_at = now
                display.say(f"{self.progress()}.")

        return on_request


def _check_shapes(samples: Sequence[LabelledFile], shape: tuple[int, ...]) -> None:
    for images in {id(sample.images): sample.images for sample in samples}.values():
        if not isinstance(images, list) and tuple(images.shape[1:]) != shape:
            have, take = ("x".join(map(str, sizes)) for sizes in (images.shape[1:], shape))
            raise InputError(
                f"These images are {have} and the service takes {take}; start one that takes them, in another folder: "
                f"`iblurry live serve --image {have} --data-dir FOLDER`."
            )


def _report(receipt: Receipt, left_out: list[str], status: dict[str, Any], url: str, *, as_json: bool) -> None:
    accepted, repeated = receipt.accepted, receipt.repeated
    if as_json:
        names = ("learnt", "queue", "classes", "accuracy", "recent_accuracy", "held_out", "held_out_accuracy")
        numbers = {name: status[name] for name in names}
        counts = {"accepted": accepted, "repeated": repeated, "first": receipt.first, "last": receipt.last}
        click.echo(json.dumps({"url": url} | counts | {"left_out": left_out} | numbers, indent=2))
        return
    if left_out:
        more = f", and {len(left_out) - NAMED:,} more" if len(left_out) > NAMED else ""
        named = ", ".join(left_out[:NAMED]) + more
        click.echo(f"iblurry: Left out, because they cannot be read: {len(left_out):,} ({named}).", err=True)
    before = f", {repeated:,} of which were accepted before" if repeated else ""
    if receipt.operation:
        right = status["held_out_accuracy"]
        share = "none of a known class" if right is None else f"accuracy {100 * right:.1f} % on known classes"
        click.echo(f"{counted(accepted, 'sample')} held out{before}; {status['held_out']:,} are kept, {share}")
        return
    known = counted(status["classes"], "class")
    click.echo(f"{counted(accepted, 'sample')} accepted{before}; {status['learnt']:,} learnt, {known}")
    if status["accuracy"] is not None:
        right = f"Predicted correctly before they were learnt: {100 * status['accuracy']:.1f} % of all"
        if status["learnt"] > status["window"] and status["recent_accuracy"] is not None:
            right += f", {100 * status['recent_accuracy']:.1f} % of the last {status['window']:,}"
        click.echo(right)
