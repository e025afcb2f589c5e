"""Methods: one recipe each, the paper cited; `iblurry.methods()` lists them."""

import sys
from types import ModuleType

from iblurry.methods.agem import agem
from iblurry.methods.balm import balm
from iblurry.methods.bic import bic
from iblurry.methods.clib import clib, clib_averaged, clib_balanced, clib_exponential, clib_reservoir, clib_stream
from iblurry.methods.derpp import derpp
from iblurry.methods.er import er, er_averaged, er_constant
from iblurry.methods.er_ace import er_ace
from iblurry.methods.ewc import ewc
from iblurry.methods.gdumb import gdumb
from iblurry.methods.gss import gss
from iblurry.methods.joint import joint
from iblurry.methods.mir import mir
from iblurry.methods.mkd import mkd
from iblurry.methods.ncm import ncm
from iblurry.methods.randumb import randumb
from iblurry.methods.ranpac import ranpac
from iblurry.methods.recipe import METHODS, Hyperparameters, Recipe, method, methods as list_methods, recipe, released
from iblurry.methods.rm import rm
from iblurry.methods.sar import sar
from iblurry.methods.sdp import sdp
from iblurry.methods.slda import slda

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
