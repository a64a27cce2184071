"""Keeps the cores from sleeping while contenders are started and measured. A hypervisor looks for a
new place for a core that slept, and launches of libraries are full of short waits: without this,
the cores are near each other in one launch and far in the next (nearness.py).

Linux polls instead of halting as long as somebody demands to be woken without delay (the file
below). That takes nothing from who works. Needs root; without, and elsewhere, it does nothing.
"""
import contextlib
import struct

DEMAND = "/dev/cpu_dma_latency"


@contextlib.contextmanager
def cores_awake(path=DEMAND):
    """Whether they are; as long as the file is open."""
    with contextlib.ExitStack() as held:
        try:
            demand = held.enter_context(open(path, "wb", buffering=0))
            demand.write(struct.pack("=i", 0))  # microseconds
        except OSError:
            yield False
        else:
            yield True
