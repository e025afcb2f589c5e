"""A run's folder: it belongs to one experiment, one version and, while in use, one process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iblurry.errors import DataError, FolderError, InputError
from iblurry.experiment.callback import Callback
from iblurry.storage.files import locked, write_file
from iblurry.storage.untrusted import MALFORMED, read_json, reason
from iblurry.version import __version__

if TYPE_CHECKING:
    from iblurry.experiment.experiment import Experiment

FORMAT = 2  # of the files in a run's folder
LOCK_TIMEOUT = 3.0  # seconds to wait for another process to leave: a killed program's workers need a moment to notice
Value = str | int | float  # also bool, which is an int
REMEDY = "Choose another --out, or delete that folder to start again."


class RunFolder:
    """The files of a run: experiment.json, environment.json, journal.jsonl, checkpoint-*.safetensors, summary.json.

    Parameters
    ----------
    path : Path or str
        The folder; it is created when the run starts.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def journal(self) -> Path:
        """The journal's path; compressed only in collected results."""
        plain, packed = self.path / "journal.jsonl", self.path / "journal.jsonl.gz"
        return packed if packed.exists() and not plain.exists() else plain

    def summary(self) -> dict[str, Any] | None:
        """The content of summary.json; None while the run is not finished."""
        return self._read("summary.json")

    def environment(self) -> dict[str, Any] | None:
        """Versions, threads, data and time spent, as last written."""
        return self._read("environment.json")

    def about(self) -> dict[str, Any]:
        """The content of experiment.json; needs no torch."""
        about = self._read("experiment.json")
        if about is None:
            raise FolderError(f"{self.path} is not a run: it has no experiment.json. Give a folder inside --out.")
        self._check_format(about)
        return about

    def hyperparameters(self) -> dict[str, Value]:
        """Every field of the experiment by the path that --set takes; needs no torch and no code of the user's."""
        about = self.about()
        try:
            return flatten_experiment(about["experiment"])
        except MALFORMED as error:
            raise self._bad_experiment(error) from error

    def experiment(self) -> Experiment:
        """The experiment that is run here."""
        from iblurry.experiment.experiment import Experiment

        about = self.about()
        try:
            return Experiment.from_json(about["experiment"])
        except MALFORMED as error:
            raise self._bad_experiment(error) from error

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file atomically."""
        write_file(self.path / name, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())

    def claim(self, experiment: Experiment) -> None:
        """Write experiment.json, or check that it is there already; FolderError if it is another experiment's."""
        about = self._read("experiment.json")
        if about is None and self.journal.exists():  # ours always have both
            raise FolderError(f"{self.path} has a journal but no experiment.json to say whose it is. {REMEDY}")
        if about is None:
            content = {"format": FORMAT, "version": __version__, "digest": experiment.digest}
            sources = {written: asdict(where) for written, where in experiment.sources().items()}
            self.write("experiment.json", content | {"experiment": experiment.to_json(), "sources": sources})
            return
        self._check_format(about)
        if about.get("digest") != experiment.digest or self.experiment().digest != experiment.digest:
            raise FolderError(f"{self.path} belongs to another experiment ({about.get('digest')}). {REMEDY}")
        if about.get("version") != __version__ and self.summary() is None:
            raise FolderError(
                f"{self.path} was started by iblurry {about.get('version')}, and {__version__} may not continue it "
                f"exactly. Finish it with that version. {REMEDY}"
            )

    def check_data(self, dataset: str, fingerprint: str) -> None:
        """FolderError unless the run was begun with these data.

        Parameters
        ----------
        dataset : str
            What the experiment calls it, for the message.
        fingerprint : str
            Of the data that are there now.
        """
        if (self.environment() or {}).get("data", fingerprint) != fingerprint:
            raise FolderError(
                f"The data of {dataset!r} have changed since {self.path} was run. Put the old data back; or run "
                "it again with --again (again=True), which deletes the old run; or keep both, with another --out."
            )

    def check_callbacks(self, callbacks: Sequence[Callback]) -> None:
        """FolderError unless these callbacks are those the run was begun with; of a whole run, some of them will do.

        Parameters
        ----------
        callbacks : sequence of Callback
            Those that take part in the run.
        """
        summary, now = self.summary(), describe_callbacks(callbacks)
        if summary is None and not any(self.path.glob("checkpoint-*")):
            return  # nothing that they did is kept
        before: list[Any] = (self.environment() or {}).get("callbacks", [])
        is_whole = summary is not None and "stopped" not in summary
        if not (all(one in before for one in now) if is_whole else now == before):
            had, have = (", ".join(name for one in some for name in one) or "none" for some in (before, now))
            raise FolderError(
                f"{self.path} was run with other callbacks: {had}; now {have}. Give the same callbacks; or run it "
                "again with --again (again=True), which deletes the old run; or keep both, with another --out."
            )

    def clear(self) -> None:
        """Delete what the run has written, so that it starts again."""
        if not self.path.exists():
            return
        with self.locked():
            for path in self.path.iterdir():
                if path.name != "lock" and path.is_file():
                    path.unlink()

    @contextmanager
    def locked(self, timeout: float | None = None) -> Iterator[None]:
        """Keep other processes out of this folder; BusyError if one is still there after `timeout` seconds."""
        usual = LOCK_TIMEOUT if timeout is None else timeout
        with locked(self.path / "lock", timeout=usual, remedy="choose another --out"):
            yield

    def _bad_experiment(self, error: Exception) -> DataError:
        return DataError(f"{self.path / 'experiment.json'} is not a valid experiment: {reason(error)}.")

    def _check_format(self, about: dict[str, Any]) -> None:
        if about.get("format") != FORMAT:
            raise FolderError(
                f"{self.path} was written in format {about.get('format')}, and this version of iblurry reads format "
                f"{FORMAT}: use the version that wrote it. {REMEDY}"
            )

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        if not path.exists():
            return None
        content: dict[str, Any] = read_json(path, remedy=f"Put back a good copy, or delete {self.path}.")
        return content


def describe_callbacks(callbacks: Sequence[Callback]) -> list[dict[str, Any]]:
    """Name, hash of the code and settings of each that is stored with the run, as environment.json keeps them."""
    described: list[dict[str, Any]] = []
    for callback in (one for one in callbacks if one.is_stored):
        try:
            described.append(json.loads(json.dumps(callback.to_json(), allow_nan=False)))
        except (TypeError, ValueError) as error:
            name = type(callback).__name__
            raise InputError(
                f"A field of the callback {name} cannot be saved: {error}. Use numbers, strings, booleans, None and "
                "tuples of these; create other objects in on_train_start."
            ) from error
    return described


def flatten_fields(fields: dict[str, Any], prefix: str = "") -> dict[str, Value]:
    """Every field by its path: `memory`, `augment.pad`, `admission` (the part's name), `admission.step`.

    Several parts in a slot have places: `terms` is "CrossEntropy,Elastic", and the second has `terms.1.strength`.

    >>> flatten_fields({"memory": 20, "schedule": {"Constant": {"initial_lr": 0.1}}})
    {'memory': 20, 'schedule': 'Constant', 'schedule.initial_lr': 0.1}
    """
    flat: dict[str, Value] = {}
    for name, value in fields.items():
        path, inner = f"{prefix}{name}", {}
        if isinstance(value, list):
            parts = [_split_part(item) for item in value]
            flat[path] = ",".join(str(part) for part, _ in parts) or "none"
            inner = {str(place): own for place, (_, own) in enumerate(parts)}
        elif isinstance(value, dict):
            part, inner = _split_part(value)
            if part is value:
                inner = value
            else:
                flat[path] = part
        else:
            flat[path] = "none" if value is None else value
        flat |= flatten_fields(inner, f"{path}.")
    return flat


def flatten_experiment(experiment: dict[str, Any]) -> dict[str, Value]:
    """The method's name, then every field of the experiment and of its method, from experiment.json.

    >>> method = {"name": "mine", "schedule": {"Constant": {"initial_lr": 0.1}}}
    >>> flatten_experiment({"memory": 20, "method": method})
    {'method': 'mine', 'memory': 20, 'schedule': 'Constant', 'schedule.initial_lr': 0.1}
    """
    method = dict(experiment["method"])
    settings = {name: value for name, value in experiment.items() if name != "method"}
    return {"method": method.pop("name")} | flatten_fields(settings) | flatten_fields(method)


def _split_part(value: Any) -> tuple[Any, dict[str, Any]]:
    """A part's name and its fields, of {"Uniform": {"count": 16}}; anything else is itself."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, fields),) = value.items()
        if isinstance(fields, dict):
            return name, fields
    return value, {}
