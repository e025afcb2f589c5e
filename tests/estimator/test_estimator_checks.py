"""scikit-learn's own checks of an estimator, all of them."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from iblurry import ContinualClassifier

MODEL = ContinualClassifier(memory=40, updates_per_sample="1/3")  # cheap: some checks fit hundreds of rows many times


def name(check):
    options = {key: value for key, value in getattr(check, "keywords", {}).items() if key != "name"}
    return getattr(check, "func", check).__name__ + "".join(f", {key}={value}" for key, value in options.items())


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=[pytest.mark.slow] if "readonly_memmap" in name(check) else [], id=name(check))
        for _, check in estimator_checks_generator(MODEL)
    ],
)
def test_check(check):
    check(MODEL)


def test_the_checks_are_those_of_a_classifier():
    names = {name(check) for _, check in estimator_checks_generator(ContinualClassifier())}
    assert len(names) > 45
    assert {"check_classifiers_train", "check_estimators_pickle", "check_methods_subset_invariance"} <= names
    tags = ContinualClassifier().__sklearn_tags__()
    assert not tags.classifier_tags.poor_score
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert tags.classifier_tags.multi_class
