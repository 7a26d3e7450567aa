"""Runs the file service's test modules that are named in PARTS, with the libraries of this environment."""

import os
import unittest

unittest.main(module=None, argv=["files", "-v", *os.environ["PARTS"].split()])
