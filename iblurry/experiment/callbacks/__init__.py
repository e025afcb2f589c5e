"""Callbacks of the package, known by their names on the command line once this is imported."""

from iblurry.experiment.callbacks.knowledge_ratios import KnowledgeRatios
from iblurry.experiment.callbacks.mlflow import MLflow
from iblurry.experiment.callbacks.online_accuracy import OnlineAccuracy
from iblurry.experiment.callbacks.tensorboard import TensorBoard
from iblurry.experiment.callbacks.wandb import WandB

__all__ = ["KnowledgeRatios", "MLflow", "OnlineAccuracy", "TensorBoard", "WandB"]
