"""What a service answers, as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Receipt:
    """Samples that are on the service's disk and will be learnt, or are held out.

    Parameters
    ----------
    accepted : int
        How many.
    first, last : int
        Numbers of the first and the last one, from 1; with other clients, not all between them are ours. Samples that
        are held out have none: 0.
    repeated : int
        How many had been accepted before, under the same key.
    operation : int
        Of samples that are held out: the number of the last one, for `Client.wait(operation=...)`.
    """

    accepted: int
    first: int
    last: int
    repeated: int
    operation: int = 0


class TopLabel(NamedTuple):
    """A label and its probability."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The model's answer for one image.

    Parameters
    ----------
    label : str
        The most probable label.
    probability : float
        Its probability, over the classes met so far.
    top : tuple of TopLabel
        The most probable labels, the best first.
    model : int
        Samples the model had learnt.
    id : str
        Under which its label can be sent later, see `Client.label`.
    unknown : bool
        Whether `probability` is below `threshold`: perhaps a class that the service never met.
    threshold : float, optional
        None while too few samples were tested.
    """

    label: str
    probability: float
    top: tuple[TopLabel, ...]
    model: int
    id: str = ""
    unknown: bool = False
    threshold: float | None = None


@dataclass(frozen=True)
class CorrectionReceipt:
    """Corrections that are on the service's disk and will be applied.

    Parameters
    ----------
    accepted : int
        How many.
    operation : int
        The number of the last one, for `Client.wait(operation=...)`.
    repeated : bool
        Whether they had been accepted before, under the same key.
    sentence : str
        What becomes of what was learnt from the mistake.
    """

    accepted: int
    operation: int
    repeated: bool
    sentence: str
