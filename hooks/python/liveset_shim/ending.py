"""Lets autograd's threads come to rest before the interpreter of a dry run ends.

backward() returns in the main thread while autograd's thread of the device still takes the graph apart. Kernels of a stand-in
device take no time, so the script may have ended by then. Python ends a thread that asks for a finished interpreter by unwinding
it; PyTorch's thread may not be unwound, and the process would abort after all of its work. A GPU's jobs hardly ever lose this
race, which is PyTorch's own; those of a dry run often would.
"""
import atexit
import os
import time

LONGEST_SECONDS = 5.0
PAUSE_SECONDS = 0.01
QUIET_PAUSES = 3


class Ending:
    def __init__(self, context):
        del context
        self._dry_run = "LIVESET_STANDIN" in os.environ

    def install(self):
        if self._dry_run:
            atexit.register(wait_for_autograd)

    def uninstall(self):
        atexit.unregister(wait_for_autograd)


def wait_for_autograd():
    """Returns when no thread of autograd has run for a while; at once when there is none."""
    deadline = time.monotonic() + LONGEST_SECONDS
    before, quiet = activity(), 0
    while before and quiet < QUIET_PAUSES and time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)  # without the interpreter's lock, so that they get it
        now = activity()
        quiet = quiet + 1 if now == before else 0
        before = now


def activity():
    """-> a list that changes whenever one of autograd's threads runs. Its entries are unequal to any while one wants to run."""
    found = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/status", encoding="utf-8") as file:
                status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
        except OSError:  # it has just ended
            continue
        if status.get("Name", "").startswith("pt_autograd"):
            resting = status.get("State", "").startswith("S")
            found.append((thread, status.get("voluntary_ctxt_switches"), status.get("nonvoluntary_ctxt_switches"), resting or object()))
    return found
