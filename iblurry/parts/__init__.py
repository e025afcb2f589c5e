"""Parts: six kinds of answers to six questions, from which every method is put together."""

from iblurry.parts.admission.admission import Admission
from iblurry.parts.admission.balanced import Balanced
from iblurry.parts.admission.diverse import Diverse
from iblurry.parts.admission.everything import Everything
from iblurry.parts.admission.importance import Importance
from iblurry.parts.admission.reservoir import Reservoir
from iblurry.parts.gradient.clip import Clip
from iblurry.parts.gradient.project import Project
from iblurry.parts.gradient.rule import GradientRule
from iblurry.parts.part import Part, column, scratch, state
from iblurry.parts.readout.bias_corrected import BiasCorrected
from iblurry.parts.readout.plain import Plain
from iblurry.parts.readout.readout import Readout
from iblurry.parts.readout.refit import Refit
from iblurry.parts.rehearsal.interfered import Interfered
from iblurry.parts.rehearsal.nothing import Nothing
from iblurry.parts.rehearsal.rehearsal import Rehearsal
from iblurry.parts.rehearsal.shuffled import Shuffled
from iblurry.parts.rehearsal.uniform import Uniform
from iblurry.parts.schedule.adaptive import Adaptive
from iblurry.parts.schedule.constant import Constant
from iblurry.parts.schedule.cosine import Cosine
from iblurry.parts.schedule.exponential import Exponential
from iblurry.parts.schedule.multistep import MultiStep
from iblurry.parts.schedule.schedule import Schedule
from iblurry.parts.terms.cross_entropy import CrossEntropy
from iblurry.parts.terms.distil import Distil
from iblurry.parts.terms.elastic import Elastic
from iblurry.parts.terms.term import Term

__all__ = [
    "Adaptive",
    "Admission",
    "Balanced",
    "BiasCorrected",
    "Clip",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "Distil",
    "Diverse",
    "Elastic",
    "Everything",
    "Exponential",
    "GradientRule",
    "Importance",
    "Interfered",
    "MultiStep",
    "Nothing",
    "Part",
    "Plain",
    "Project",
    "Readout",
    "Refit",
    "Rehearsal",
    "Reservoir",
    "Schedule",
    "Shuffled",
    "Term",
    "Uniform",
    "column",
    "scratch",
    "state",
]
