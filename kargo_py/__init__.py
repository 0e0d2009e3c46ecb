"""Kargo-style promotion controllers for Python.

Import what you need from its module (``from kargo_py.api.promotion import Promotion``): this package itself imports
nothing, so that ``import kargo_py`` costs nothing.
"""

__version__ = "0.1.0"
