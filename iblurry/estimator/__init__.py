"""The scikit-learn face of a continual learner; needs the extra `iblurry[sklearn]`."""

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "ContinualClassifier needs scikit-learn, which is not installed; pip install 'iblurry[sklearn]'.",
        name="sklearn",
    ) from error

from iblurry.estimator.classifier import ContinualClassifier

__all__ = ["ContinualClassifier"]
