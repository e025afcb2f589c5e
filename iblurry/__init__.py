"""Online continual learning on i-Blurry streams: learn one sample at a time, query at any moment, resume exactly."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iblurry.version import __version__

if TYPE_CHECKING:
    from iblurry.augment import Augment, TorchTransform, Transform
    from iblurry.data.dataset import Dataset
    from iblurry.data.load import load, register_source
    from iblurry.engine.optimizer import SGD, Adam, AdamW, Optimizer
    from iblurry.errors import CheckpointError, DataError, IblurryError, InputError
    from iblurry.estimator import ContinualClassifier as ContinualClassifier
    from iblurry.experiment.callback import Callback
    from iblurry.experiment.callbacks import KnowledgeRatios, OnlineAccuracy
    from iblurry.experiment.checkpointer import CheckpointPolicy
    from iblurry.experiment.environment import Hardware
    from iblurry.experiment.experiment import Experiment
    from iblurry.experiment.result import Result
    from iblurry.experiment.run_callbacks import RunState
    from iblurry.exported import ExportedModel, load_exported
    from iblurry.launch.config import LaunchConfig
    from iblurry.launch.launch import run, run_all
    from iblurry.learner import Learner
    from iblurry.live.client import Client
    from iblurry.method import Head, Method, Pace
    from iblurry.methods import (
        METHODS,
        Hyperparameters,
        Recipe,
        agem,
        balm,
        bic,
        clib,
        clib_averaged,
        clib_balanced,
        clib_exponential,
        clib_reservoir,
        clib_stream,
        derpp,
        er,
        er_ace,
        er_averaged,
        er_constant,
        ewc,
        gdumb,
        gss,
        joint,
        methods,
        mir,
        mkd,
        ncm,
        randumb,
        ranpac,
        recipe,
        released,
        rm,
        sar,
        sdp,
        slda,
    )
    from iblurry.network.registry import register_network
    from iblurry.parts import (
        Adaptive,
        AdjustedCrossEntropy,
        Admission,
        AsymmetricCrossEntropy,
        Averaged,
        AverageTeacher,
        Balanced,
        BiasCorrected,
        ByConfidence,
        Clip,
        Constant,
        Cosine,
        CrossEntropy,
        Discard,
        Discriminant,
        Distil,
        Diverse,
        Elastic,
        Everything,
        Exponential,
        GradientRule,
        Importance,
        Interfered,
        LeastUsed,
        MomentumDistil,
        MultiStep,
        NearestMean,
        Nothing,
        Part,
        Plain,
        Project,
        Readout,
        Refit,
        Rehearsal,
        Reservoir,
        Ridge,
        RingBuffer,
        RunningMean,
        Schedule,
        ScheduledPrior,
        Shuffled,
        StoredLogits,
        Term,
        Uniform,
        column,
        scratch,
        state,
    )
    from iblurry.rng import Rng
    from iblurry.streams import Domains, Gaussian, IBlurry, Listed, Published, SiBlurry, Sigmoid, Stream
    from iblurry.streams.iterator import StreamItem, StreamIterator
    from iblurry.streams.order import Order, i_blurry
    from iblurry.training import Training

_HOMES = {  # opened at the first use of a name: importing torch takes seconds, and `iblurry --help` should not
    "iblurry.augment": "Augment TorchTransform Transform",
    "iblurry.data.dataset": "Dataset",
    "iblurry.data.load": "load register_source",
    "iblurry.engine.optimizer": "Adam AdamW Optimizer SGD",
    "iblurry.errors": "CheckpointError DataError IblurryError InputError",
    "iblurry.estimator": "ContinualClassifier",
    "iblurry.experiment.callback": "Callback",
    "iblurry.experiment.callbacks": "KnowledgeRatios OnlineAccuracy",
    "iblurry.experiment.checkpointer": "CheckpointPolicy",
    "iblurry.experiment.environment": "Hardware",
    "iblurry.experiment.experiment": "Experiment",
    "iblurry.experiment.result": "Result",
    "iblurry.experiment.run_callbacks": "RunState",
    "iblurry.exported": "ExportedModel load_exported",
    "iblurry.launch.config": "LaunchConfig",
    "iblurry.launch.launch": "run run_all",
    "iblurry.learner": "Learner",
    "iblurry.live.client": "Client",
    "iblurry.method": "Head Method Pace",
    "iblurry.methods": (
        "agem balm bic clib clib_averaged clib_balanced clib_exponential clib_reservoir clib_stream derpp er er_ace "
        "er_averaged er_constant ewc gdumb gss Hyperparameters joint METHODS methods mir mkd ncm randumb ranpac Recipe "
        "recipe released rm sar sdp slda"
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
    "iblurry.training": "Training",
}
_EXTRA = {"ContinualClassifier"}  # a star import must not need an extra
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "METHODS",
    "SGD",
    "Adam",
    "AdamW",
    "Adaptive",
    "AdjustedCrossEntropy",
    "Admission",
    "AsymmetricCrossEntropy",
    "Augment",
    "AverageTeacher",
    "Averaged",
    "Balanced",
    "BiasCorrected",
    "ByConfidence",
    "Callback",
    "CheckpointError",
    "CheckpointPolicy",
    "Client",
    "Clip",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "DataError",
    "Dataset",
    "Discard",
    "Discriminant",
    "Distil",
    "Diverse",
    "Domains",
    "Elastic",
    "Everything",
    "Experiment",
    "Exponential",
    "ExportedModel",
    "Gaussian",
    "GradientRule",
    "Hardware",
    "Head",
    "Hyperparameters",
    "IBlurry",
    "IblurryError",
    "Importance",
    "InputError",
    "Interfered",
    "KnowledgeRatios",
    "LaunchConfig",
    "Learner",
    "LeastUsed",
    "Listed",
    "Method",
    "MomentumDistil",
    "MultiStep",
    "NearestMean",
    "Nothing",
    "OnlineAccuracy",
    "Optimizer",
    "Order",
    "Pace",
    "Part",
    "Plain",
    "Project",
    "Published",
    "Readout",
    "Recipe",
    "Refit",
    "Rehearsal",
    "Reservoir",
    "Result",
    "Ridge",
    "RingBuffer",
    "Rng",
    "RunState",
    "RunningMean",
    "Schedule",
    "ScheduledPrior",
    "Shuffled",
    "SiBlurry",
    "Sigmoid",
    "StoredLogits",
    "Stream",
    "StreamItem",
    "StreamIterator",
    "Term",
    "TorchTransform",
    "Training",
    "Transform",
    "Uniform",
    "__version__",
    "agem",
    "balm",
    "bic",
    "clib",
    "clib_averaged",
    "clib_balanced",
    "clib_exponential",
    "clib_reservoir",
    "clib_stream",
    "column",
    "derpp",
    "er",
    "er_ace",
    "er_averaged",
    "er_constant",
    "ewc",
    "gdumb",
    "gss",
    "i_blurry",
    "joint",
    "load",
    "load_exported",
    "methods",
    "mir",
    "mkd",
    "ncm",
    "randumb",
    "ranpac",
    "recipe",
    "register_network",
    "register_source",
    "released",
    "rm",
    "run",
    "run_all",
    "sar",
    "scratch",
    "sdp",
    "slda",
    "state",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'iblurry' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_EXTRA})
