"""Methods: a recipe each, the paper cited; `iblurry.methods()` lists them."""

import sys
from types import ModuleType

from iblurry.methods.recipe import METHODS, Hyperparameters, Recipe, method, recipe, released
from iblurry.methods.recipe import methods as list_methods
from iblurry.methods.recipes import (
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
    mir,
    mkd,
    ncm,
    randumb,
    ranpac,
    rm,
    sar,
    sdp,
    slda,
)

__all__ = [
    "METHODS",
    "Hyperparameters",
    "Recipe",
    "agem",
    "balm",
    "bic",
    "clib",
    "clib_averaged",
    "clib_balanced",
    "clib_exponential",
    "clib_reservoir",
    "clib_stream",
    "derpp",
    "er",
    "er_ace",
    "er_averaged",
    "er_constant",
    "ewc",
    "gdumb",
    "gss",
    "joint",
    "method",
    "mir",
    "mkd",
    "ncm",
    "randumb",
    "ranpac",
    "recipe",
    "released",
    "rm",
    "sar",
    "sdp",
    "slda",
]


class _Methods(ModuleType):
    __call__ = staticmethod(list_methods)


methods = sys.modules[__name__]  # what `iblurry.methods` is: this package, which can be called, too
methods.__class__ = _Methods
