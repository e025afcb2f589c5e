"""Online continual learning on i-Blurry streams: learn one sample at a time, query at any moment, resume exactly."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iblurry.version import __version__ as __version__

if TYPE_CHECKING:  # an alias or a star says to checkers that a name is public
    from iblurry.analysis.results import curves as curves, results as results
    from iblurry.augment import *
    from iblurry.data.dataset import Dataset as Dataset
    from iblurry.data.load import load as load, register_source as register_source
    from iblurry.engine.optimizer import SGD as SGD, Adam as Adam, AdamW as AdamW, Optimizer as Optimizer
    from iblurry.errors import (
        CheckpointError as CheckpointError,
        DataError as DataError,
        IblurryError as IblurryError,
        InputError as InputError,
    )
    from iblurry.estimator import ContinualClassifier as ContinualClassifier
    from iblurry.experiment.callback import Callback as Callback
    from iblurry.experiment.callbacks import *
    from iblurry.experiment.checkpointer import CheckpointPolicy as CheckpointPolicy
    from iblurry.experiment.environment import Hardware as Hardware
    from iblurry.experiment.experiment import Experiment as Experiment
    from iblurry.experiment.result import Result as Result, replay as replay
    from iblurry.experiment.run_state import RunState as RunState
    from iblurry.launch.config import LaunchConfig as LaunchConfig
    from iblurry.launch.launch import run as run, run_all as run_all
    from iblurry.learner.config import LearnerConfig as LearnerConfig
    from iblurry.learner.exported import ExportedModel as ExportedModel, load_exported as load_exported
    from iblurry.learner.learner import Learner as Learner
    from iblurry.live.client import Client as Client
    from iblurry.methods import *
    from iblurry.methods import methods as methods
    from iblurry.methods.method import Head as Head, Method as Method, Pace as Pace, Training as Training
    from iblurry.network.registry import register_network as register_network
    from iblurry.parts import *
    from iblurry.rng import Rng as Rng
    from iblurry.streams import *
    from iblurry.streams.iterator import StreamItem as StreamItem, StreamIterator as StreamIterator
    from iblurry.streams.order import Order as Order, i_blurry as i_blurry

_HOMES = {  # opened at the first use of a name: importing torch takes seconds, and `iblurry --help` should not
    "iblurry.analysis.results": "curves results",
    "iblurry.augment": "Augment TorchTransform Transform",
    "iblurry.data.dataset": "Dataset",
    "iblurry.data.load": "load register_source",
    "iblurry.engine.optimizer": "Adam AdamW Optimizer SGD",
    "iblurry.errors": "CheckpointError DataError IblurryError InputError",
    "iblurry.estimator": "ContinualClassifier",
    "iblurry.experiment.callback": "Callback",
    "iblurry.experiment.callbacks": "KnowledgeRatios MLflow OnlineAccuracy TensorBoard WandB",
    "iblurry.experiment.checkpointer": "CheckpointPolicy",
    "iblurry.experiment.environment": "Hardware",
    "iblurry.experiment.experiment": "Experiment",
    "iblurry.experiment.result": "replay Result",
    "iblurry.experiment.run_state": "RunState",
    "iblurry.learner.config": "LearnerConfig",
    "iblurry.learner.exported": "ExportedModel load_exported",
    "iblurry.launch.config": "LaunchConfig",
    "iblurry.launch.launch": "run run_all",
    "iblurry.learner.learner": "Learner",
    "iblurry.live.client": "Client",
    "iblurry.methods.method": "Head Method Pace Training",
    "iblurry.methods": (
        "agem balm bic clib clib_averaged clib_balanced clib_exponential clib_reservoir clib_stream derpp er er_ace "
        "er_averaged er_constant ewc gdumb gss Hyperparameters joint METHODS method methods mir mkd ncm randumb ranpac "
        "Recipe recipe released rm sar sdp slda"
    ),
    "iblurry.network.registry": "register_network",
    "iblurry.parts": (
        "Adaptive AdjustedCrossEntropy Admission AsymmetricCrossEntropy Averaged AverageTeacher Balanced "
        "BiasCorrected ByConfidence Clip column Constant Cosine CrossEntropy Discard Discriminant Distil Diverse "
        "Elastic Everything Exponential GradientRule Importance Interfered LeastUsed MomentumDistil MultiStep "
        "NearestMean Nothing Part Plain Project Readout Refit Rehearsal Reservoir Ridge RingBuffer RunningMean "
        "Schedule ScheduledPrior scratch Shuffled state StoredLogits Term Uniform"
    ),
    "iblurry.rng": "Rng",
    "iblurry.streams": "Domains Gaussian IBlurry Listed Published SiBlurry Sigmoid Stream",
    "iblurry.streams.iterator": "StreamItem StreamIterator",
    "iblurry.streams.order": "i_blurry Order",
}
_EXTRA = {"ContinualClassifier"}  # a star import must not need an extra
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:
    __all__ = sorted({"__version__", *_HOME_OF} - _EXTRA)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'iblurry' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"__version__", *_HOME_OF})
