#!/usr/bin/env python3
"""What tools/progress.py shows of a build, in a terminal and elsewhere; its log has all of it."""

import io
import itertools
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOLS))
import progress  # noqa: E402  (where it is found has just been said)


def shown(lines: list[str], rewrites: bool) -> str:
    """Half a minute passes from each step to the next."""
    times = itertools.count(0, 30)
    out = io.StringIO()
    seen = progress.Shown(out, rewrites, lambda: float(next(times)))
    for line in lines:
        seen.see(line)
    seen.end()
    return out.getvalue()


class Progress(unittest.TestCase):
    def test_each_tenth_is_a_line(self):
        steps = [f"[{done}/40] Building x{done}.o\n" for done in range(1, 41)]
        out = shown(steps, rewrites=False)
        self.assertEqual([line.split(" steps")[0] for line in out.splitlines()],
                         [f"{done} of 40" for done in range(4, 40, 4)])

    def test_a_terminal_has_one_line_that_is_gone_at_the_end(self):
        out = shown(["[1/2] a\n", "[2/2] b\n"], rewrites=True)
        self.assertEqual(out, "\r1 of 2 steps, 0:30\033[K\r2 of 2 steps, 1:00\033[K\r\033[K")

    def test_what_is_no_step_shows_nothing(self):
        lines = ["ninja: no work to do.\n", "[x/2]\n", "x.cc:1: error\n"]
        self.assertEqual(shown(lines, rewrites=True), "")

    def test_the_log_has_all_of_it(self):
        said = "[1/2] a\nx.cc:1: error: y\nninja: build stopped\n"
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            subprocess.run([sys.executable, TOOLS / "progress.py", log], input=said, text=True,
                           check=True, stdout=subprocess.DEVNULL)
            self.assertEqual(log.read_text(), said)


if __name__ == "__main__":
    unittest.main()
