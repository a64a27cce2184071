#!/usr/bin/env python3
"""Shows how far a build is, while all that it says goes to a log.

A build of many minutes that says nothing looks like one that hangs. In a terminal one line is
written again and again; elsewhere there is a line for each tenth.

    cmake --build --preset release 2>&1 | tools/progress.py build/logs/release.log
"""

import re
import sys
import time

STEP = re.compile(r"^\[(\d+)/(\d+)\] ")  # as ninja begins a line when a step is done


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Shown:
    """What has been shown of a build, and where: `rewrites` where a line can be."""

    def __init__(self, out, rewrites: bool, now=time.monotonic):
        self.out, self.rewrites, self.now = out, rewrites, now
        self.begun = now()
        self.tenths = 0
        self.open = False  # a line that would be written again

    def see(self, line: str) -> None:
        step = STEP.match(line)
        if not step:
            return
        done, all_steps = int(step[1]), int(step[2])
        tenths = 10 * done // all_steps
        text = f"{done} of {all_steps} steps, {clock(self.now() - self.begun)}"
        if self.rewrites:
            self.out.write(f"\r{text}\033[K")
            self.open = True
        elif tenths > self.tenths and done < all_steps:
            self.out.write(text + "\n")
        self.tenths = max(self.tenths, tenths)
        self.out.flush()

    def end(self) -> None:
        if self.open:
            self.out.write("\r\033[K")
            self.out.flush()


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    shown = Shown(sys.stdout, sys.stdout.isatty())
    with open(sys.argv[1], "w", encoding="utf-8") as log:
        for line in sys.stdin:
            log.write(line)
            shown.see(line)
    shown.end()


if __name__ == "__main__":
    main()
