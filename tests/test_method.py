from __future__ import annotations

import pytest

from iblurry.errors import InputError
from iblurry.method import Head, Method, Pace
from iblurry.methods import clib
from iblurry.parts import Nothing, Uniform


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Method(admission=Uniform()), "admission takes a Admission"),
        (lambda: Method(terms=()), "terms is empty"),
        (lambda: Method(pace=Pace(train_stream=False), rehearsal=Nothing()), "the batch would be empty"),
        (lambda: Pace(gather=4, updates_per_sample="1/8"), "gather at least 8"),
        (lambda: Pace(gather=0), "at least 1"),
        (lambda: Pace(updates_per_sample="much"), "'much' is no fraction"),
        (lambda: Pace(store="never"), "'before' or 'after'"),
        (lambda: Head(moments="lose"), "'forget' or 'keep'"),
        (lambda: clib(admision=Nothing()), "Did you mean 'admission'"),
        (lambda: Method.from_json({"nmae": "x"}), "Did you mean 'name'"),
    ],
)
def test_illegal_methods_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
