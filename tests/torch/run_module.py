"""run_module.py MODULE: its tests, in the current folder. Exit status 77, with the reason, when it skipped all of them;
1 when it has none."""
import os
import sys
import unittest


def main(module):
    sys.path.insert(0, os.getcwd())
    result = unittest.main(module=module, argv=[module], verbosity=2, exit=False).result
    if not result.wasSuccessful() or not (result.testsRun or result.skipped):
        return 1
    if result.testsRun > len(result.skipped):
        return 0
    reasons = dict.fromkeys(reason for _, reason in result.skipped)
    print(f"SKIPPED: {'; '.join(reasons)}")
    return 77


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
