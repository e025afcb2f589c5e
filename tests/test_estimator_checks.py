"""scikit-learn's own checks of an estimator, all of them."""

from __future__ import annotations

from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from iblurry import ContinualClassifier

EXPECTED_TO_FAIL: dict[str, str] = {}  # name of the check: reason; also listed on docs/estimator.md


@parametrize_with_checks([ContinualClassifier()], expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL)
def test_check(estimator, check):
    check(estimator)


def test_the_checks_are_those_of_a_classifier():
    names = {getattr(check, "func", check).__name__ for _, check in estimator_checks_generator(ContinualClassifier())}
    assert len(names) > 45
    assert {"check_classifiers_train", "check_estimators_pickle", "check_methods_subset_invariance"} <= names
    tags = ContinualClassifier().__sklearn_tags__()
    assert not tags.classifier_tags.poor_score
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert tags.classifier_tags.multi_class
