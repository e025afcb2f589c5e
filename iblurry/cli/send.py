"""`iblurry send`: teaches a live service what is in folders of pictures or in a data set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.calling import awaited, connected, service_options
from iblurry.cli.values import Whole
from iblurry.errors import DataError, InputError, ServiceError

if TYPE_CHECKING:
    from iblurry.cli.samples import Sample
    from iblurry.live.client import Receipt

NAMED = 3  # pictures that were left out


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="PLACE...")
@click.option("--label", metavar="TEXT", help="PLACEs are pictures, or folders of them, that all show this.")
@click.option("--shuffle/--in-order", default=True, help="By the seed, or as they lie.  [default: shuffle]")
@click.option("--seed", metavar="S", type=Whole(0), default=1, show_default=True, help="Of the order.")
@click.option("--limit", metavar="N", type=Whole(1), help="Send the first N of that order.  [default: all]")
@click.option("--resume-key", metavar="NAME", help="Under one NAME each is counted once, however often it is sent.")
@click.option("--skip-bad", is_flag=True, help="Leave out pictures that cannot be read, and name them in the end.")
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
    skip_bad: bool,
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
    from iblurry.cli.sending import Sending

    samples = arrange(gather(places, label), seed=seed if shuffle else None, limit=limit)
    with connected(url, token) as client:
        shape = tuple(awaited(client)["image"])
        _check_shapes(samples, shape)
        sending = Sending(client, samples, resume_key, shape=shape, skip_bad=skip_bad)
        try:
            sending.send()
            status = sending.wait() if wait else client.status()
        except KeyboardInterrupt:
            click.echo(f"iblurry: Interrupted: {sending.so_far()}. {sending.again()}", err=True)
            return INTERRUPTED
        except ServiceError as error:
            raise ServiceError(sending.explained(error), status=error.status, code=error.code) from error
        except DataError as error:
            raise DataError(sending.explained(error)) from error
    _report(sending.lesson.receipt, sending.left_out, status, client.url, as_json=as_json)
    return 0


def _check_shapes(samples: Sequence[Sample], shape: tuple[int, ...]) -> None:
    for images in {id(sample.images): sample.images for sample in samples}.values():
        if not isinstance(images, list) and tuple(images.shape[1:]) != shape:
            have, take = ("x".join(map(str, sizes)) for sizes in (images.shape[1:], shape))
            raise InputError(
                f"These images are {have} and the service takes {take}; start one that takes them, in another folder: "
                f"`iblurry serve --image {have} --data-dir FOLDER`."
            )


def _report(receipt: Receipt, left_out: list[str], status: dict[str, Any], url: str, *, as_json: bool) -> None:
    accepted, repeated = receipt.accepted, receipt.repeated
    if as_json:
        told = {name: status[name] for name in ("learnt", "queue", "classes", "accuracy", "recent_accuracy")}
        numbers = {"accepted": accepted, "repeated": repeated, "first": receipt.first, "last": receipt.last}
        click.echo(json.dumps({"url": url} | numbers | {"left_out": left_out} | told, indent=2))
        return
    if left_out:
        more = f", and {len(left_out) - NAMED:,} more" if len(left_out) > NAMED else ""
        named = ", ".join(left_out[:NAMED]) + more
        click.echo(f"iblurry: Left out, because they cannot be read: {len(left_out):,} ({named}).", err=True)
    before = f", {repeated:,} of which were there before" if repeated else ""
    click.echo(f"{accepted:,} samples accepted{before}; {status['learnt']:,} learnt, {status['classes']:,} classes")
    if status["accuracy"] is not None:
        right = f"Right before they were learnt: {100 * status['accuracy']:.1f} % of all"
        if status["learnt"] > status["window"] and status["recent_accuracy"] is not None:
            right += f", {100 * status['recent_accuracy']:.1f} % of the last {status['window']:,}"
        click.echo(right)
