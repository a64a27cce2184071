"""Ties the life of a process to that of the one that starts it, so that a run of perf/compare that
is killed leaves no ranks behind that spin for ever. Linux only; elsewhere it does nothing."""
import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
# Not loaded in a new process: between fork and exec, little may be done.
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with(parent, number):
    """Sends the calling process that signal when its parent, which is `parent`, ends."""
    if LIBC is None:
        return
    LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), number)
