"""Parts: the components from which every method is put together, of six kinds."""

from iblurry.parts.admission.admission import Admission, Balanced, Discard, Everything, Reservoir, RingBuffer
from iblurry.parts.admission.diverse import Diverse
from iblurry.parts.admission.importance import Importance
from iblurry.parts.gradient.gradient import Clip, GradientRule, Project
from iblurry.parts.part import Part, column, scratch, state
from iblurry.parts.readout.averaged import Averaged
from iblurry.parts.readout.bias_corrected import BiasCorrected
from iblurry.parts.readout.discriminant import Discriminant
from iblurry.parts.readout.nearest_mean import NearestMean
from iblurry.parts.readout.readout import Plain, Readout
from iblurry.parts.readout.refit import Refit
from iblurry.parts.readout.ridge import Ridge
from iblurry.parts.readout.running_mean import RunningMean
from iblurry.parts.rehearsal.interfered import Interfered
from iblurry.parts.rehearsal.least_used import LeastUsed
from iblurry.parts.rehearsal.rehearsal import Nothing, Rehearsal, Shuffled, Uniform
from iblurry.parts.schedule.adaptive import Adaptive
from iblurry.parts.schedule.schedule import ByConfidence, Constant, Cosine, Exponential, MultiStep, Schedule
from iblurry.parts.terms.adjusted import AdjustedCrossEntropy
from iblurry.parts.terms.asymmetric import AsymmetricCrossEntropy
from iblurry.parts.terms.distil import Distil
from iblurry.parts.terms.elastic import Elastic
from iblurry.parts.terms.scheduled_prior import ScheduledPrior
from iblurry.parts.terms.stored_logits import StoredLogits
from iblurry.parts.terms.teacher import AverageTeacher, MomentumDistil
from iblurry.parts.terms.term import CrossEntropy, Term

__all__ = [
    "Adaptive",
    "AdjustedCrossEntropy",
    "Admission",
    "AsymmetricCrossEntropy",
    "AverageTeacher",
    "Averaged",
    "Balanced",
    "BiasCorrected",
    "ByConfidence",
    "Clip",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "Discard",
    "Discriminant",
    "Distil",
    "Diverse",
    "Elastic",
    "Everything",
    "Exponential",
    "GradientRule",
    "Importance",
    "Interfered",
    "LeastUsed",
    "MomentumDistil",
    "MultiStep",
    "NearestMean",
    "Nothing",
    "Part",
    "Plain",
    "Project",
    "Readout",
    "Refit",
    "Rehearsal",
    "Reservoir",
    "Ridge",
    "RingBuffer",
    "RunningMean",
    "Schedule",
    "ScheduledPrior",
    "Shuffled",
    "StoredLogits",
    "Term",
    "Uniform",
    "column",
    "scratch",
    "state",
]
