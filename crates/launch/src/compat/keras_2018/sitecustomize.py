"""Activates the keras-2018 layer in every Python process with this directory first on its path, then runs the user's own
sitecustomize. Must not import anything that a script may want to configure first."""
import importlib.machinery
import importlib.util
import os
import sys

import corro_keras_2018

corro_keras_2018.begin()

_here = os.path.dirname(os.path.abspath(__file__))
_others = [place for place in sys.path if os.path.abspath(place or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
