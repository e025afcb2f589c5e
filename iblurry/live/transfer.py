"""Services that go on elsewhere: one begun from a learner, and copies of one that runs."""

from __future__ import annotations

import math
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iblurry.data.labels import normalize_label
from iblurry.errors import CheckpointError, DataError, FolderError, IblurryError, InputError
from iblurry.live.log import SampleLog, check_log, copy_log
from iblurry.live.quota import Limits, max_log_bytes, max_log_operations
from iblurry.live.settings import FILE as SETTINGS, Settings
from iblurry.storage import checkpoint
from iblurry.storage.files import replacing, sync_folder
from iblurry.storage.untrusted import MALFORMED, reason

if TYPE_CHECKING:
    from iblurry.learner.learner import Learner

ATTEMPTS = 10  # to copy a service between two checkpoints that are not too close
MEMBER = re.compile(r"service\.json|samples\.sqlite|checkpoint-\d{12,}\.safetensors")
CHANGEABLE = {"device", "threads", "max_classes"}  # settings that do not come from the learner


def begin_from(folder: Path, source: Path, **given: Any) -> Settings:
    """Make the folder of a service that goes on with a learner; it appears whole or not at all.

    Samples are numbered on from those that the learner has seen, and its accuracy is counted from here.

    Parameters
    ----------
    folder : Path
        New, empty, or begun from the same source before, which then goes on with what it has.
    source : Path
        The folder of a run or service, or a file that `Learner.save` wrote.
    **given
        Settings: "device", "threads" and "max_classes", no less than the learner's; others come from the learner.
    """
    place = str(source.resolve())
    if (saved := Settings.load(folder)) is not None:
        if saved.begun_from != place:
            begun = "without --from" if saved.begun_from is None else f"from {saved.begun_from}"
            raise FolderError(f"{folder} was started {begun}; leave --from out, or choose another --data-dir.")
        return Settings.of(folder, **given)
    if fixed := sorted(set(given) - CHANGEABLE):
        raise InputError(f"{fixed[0]}={given[fixed[0]]} cannot be chosen: it comes from {source}; leave it out.")
    learner = _load(source, classes=given.get("max_classes"), device=given.get("device", "cpu"))
    settings = Settings.from_learner(learner, threads=given.get("threads", Settings.threads), begun_from=place)
    settings.check()
    with _appearing(folder) as new:
        _write(new, settings, learner)
    return settings


def _load(source: Path, *, classes: int | None, device: str) -> Learner:
    from iblurry.engine.devices import default_device, make_engine
    from iblurry.learner.learner import Learner

    device = default_device(heavy=True) if device == "auto" else device
    learner = Learner.load(source, classes=classes, device=device, precision=make_engine(device).precision)
    if not learner.labels:
        raise InputError(f"{source} has not learnt any sample yet; leave --from out.")
    for label in _labels(learner):
        try:
            if not isinstance(label, str) or normalize_label(label) != label:
                raise InputError("cannot be sent; labels of a service are text in Unicode form NFC.")
        except InputError as error:
            raise InputError(f"{source} has the label {label!r}, which {error}") from error
    return learner


def _labels(learner: Learner) -> list[str]:
    """Without those of classes that were deleted."""
    return [label for label in learner.labels if label is not None]


def _write(folder: Path, settings: Settings, learner: Learner) -> None:
    from iblurry.live.learning import LiveLearner
    from iblurry.live.quality import Quality

    live = LiveLearner(folder, settings)
    live.learner.load_state_dict(learner.state_dict())
    live.at = live.learnt = learner.context.seen
    live.quality = Quality(settings.max_classes, first=live.at)
    live.save()
    kept, size, classes = max_log_operations(Limits()), math.prod(settings.image), settings.max_classes
    log = SampleLog(folder, max_classes=classes, max_bytes=max_log_bytes(size, kept=kept, classes=classes))
    log.begin_at(live.at, _labels(learner))
    log.close()
    settings.save(folder)


def backup(folder: Path, file: Path) -> int:
    """Write a service, which may be running, to one tar file, whole or not at all; returns how many samples it has.

    The newest intact checkpoint, then the log as it is at one moment: all that was accepted until then is in it.

    Parameters
    ----------
    folder : Path
        Of the service.
    file : Path
        NAME.tar; readable for its owner alone.
    """
    settings = Settings.load(folder)
    if settings is None:
        raise FolderError(f"{folder} is not a service's folder (it has no {SETTINGS}); give that of --data-dir.")
    with replacing(file) as temporary, tempfile.TemporaryDirectory(prefix=".backup-", dir=file.parent) as made:
        accepted = _copy(folder, Path(made))
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as out, tarfile.open(fileobj=out, mode="w") as archive:
            for path in sorted(Path(made).iterdir()):
                archive.add(path, path.name)
    return accepted


def _copy(folder: Path, to: Path) -> int:
    """Samples that the copy has accepted. Two checkpoints may be written while it is made, and then the log has
    dropped what follows the one that was copied; that is done again."""
    for _ in range(ATTEMPTS):
        for path in to.iterdir():
            path.unlink()
        shutil.copyfile(folder / SETTINGS, to / SETTINGS)
        newest = checkpoint.load_latest(folder)
        try:
            if newest is not None:
                shutil.copyfile(newest.path, to / newest.path.name)
            copy_log(folder, to)
            return _check(to)
        except (FileNotFoundError, CheckpointError, DataError) as error:
            failure = error
    raise failure


def _check(folder: Path) -> int:
    """Samples accepted, of a folder in which the checkpoint is intact and the log goes on from it."""
    if Settings.load(folder) is None:
        raise DataError(f"It has no {SETTINGS}.")
    loaded = checkpoint.load_latest(folder)
    return check_log(folder, 0 if loaded is None else loaded.at)


def restore(file: Path, folder: Path) -> int:
    """Make the folder of a service from a backup, whole or not at all; returns how many samples it has.

    Parameters
    ----------
    file : Path
        What `backup` wrote; DataError if it is damaged or something else.
    folder : Path
        New or empty.
    """
    with _appearing(folder) as new:
        try:
            with tarfile.open(file, "r:") as archive:
                for member in archive:
                    if not member.isfile() or member.issparse() or not MEMBER.fullmatch(member.name):
                        raise DataError(f"It has {member.name!r}, which no backup has.")
                    archive.extract(member, new, set_attrs=False, filter="data")
            accepted = _check(new)
        except (tarfile.TarError, OSError, IblurryError, *MALFORMED) as error:
            raise DataError(
                f"{file} is not a valid backup ({reason(error)}); give a file that `iblurry live backup` wrote."
            ) from error
        for path in new.iterdir():
            path.chmod(0o600)
            with path.open("rb") as written:
                os.fsync(written.fileno())
    return accepted


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name when the block ends without an error; FolderError if there is one."""
    if folder.exists() and any(folder.iterdir()):
        raise FolderError(f"{folder} is not empty; choose a folder that is new.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))  # for its owner alone
    try:
        yield made
        made.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
