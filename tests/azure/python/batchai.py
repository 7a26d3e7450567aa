"""azure-mgmt-batchai 2.0.0, unmodified, against a real server: all 29 operations, every field of every model that can be
sent, pollers, pages, errors. `python batchai.py [NAME...]`; without names the last test checks that all fields were set."""

import sys
import unittest

import batchai_jobs
import batchai_models as examples
import batchai_resources
import batchai_wire

SENT = [
    "WorkspaceCreateParameters",
    "WorkspaceUpdateParameters",
    "ClusterCreateParameters",
    "ClusterUpdateParameters",
    "FileServerCreateParameters",
    "JobCreateParameters",
]


class Everything(unittest.TestCase):
    def test_every_field_was_sent_and_compared(self):
        self.assertEqual(examples.never_set(SENT), [])


def suite(names):
    loader = unittest.defaultTestLoader
    if names:
        loader.testNamePatterns = ["*{}*".format(name) for name in names]
    tests = [loader.loadTestsFromModule(module) for module in (batchai_resources, batchai_jobs, batchai_wire)]
    if not names:
        tests.append(loader.loadTestsFromTestCase(Everything))
    return unittest.TestSuite(tests)


if __name__ == "__main__":
    outcome = unittest.TextTestRunner(verbosity=2).run(suite(sys.argv[1:]))
    sys.exit(0 if outcome.wasSuccessful() and outcome.testsRun else 1)
