"""Callbacks of the package, known by their names on the command line once this is imported."""

from iblurry.experiment.callbacks.knowledge_ratios import KnowledgeRatios
from iblurry.experiment.callbacks.online_accuracy import OnlineAccuracy

__all__ = ["KnowledgeRatios", "OnlineAccuracy"]
