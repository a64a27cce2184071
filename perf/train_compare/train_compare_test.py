#!/usr/bin/env python3
"""Tests perf/train-compare on figures that are known, and with programs that play both sides."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "comparison")]

import launches  # noqa: E402
import summary  # noqa: E402

PLAN = types.SimpleNamespace(ranks=2, rows=8, sequence=256)


def load_script():
    loader = importlib.machinery.SourceFileLoader("train_compare", str(HERE.parent /
                                                                       "train-compare"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def outcome(seconds, loss=3.0, parameters=0):
    return launches.Outcome([seconds] * 3, [5.0] + [loss] * 5, parameters)


FAILED = launches.Outcome(failure="a rank died")


class Figures(unittest.TestCase):
    def test_a_ratio_is_taken_within_a_round(self):
        # Medians of the sides would give 3 / 2.
        made = summary.figures({"tutti": [outcome(1), outcome(2), outcome(4)],
                                "torch": [outcome(3), outcome(2), outcome(6)]}, PLAN)
        self.assertEqual(made["torch / tutti"], {"median": 1.5, "min": 1.0, "max": 3.0})
        made = summary.figures({"tutti": [outcome(1), outcome(2), outcome(4)],
                                "torch": [outcome(2), outcome(3), outcome(8)]}, PLAN)
        self.assertEqual(made["torch / tutti"]["median"], 2.0)

    def test_a_round_with_a_failed_launch_has_no_ratio_and_is_told(self):
        made = summary.figures({"tutti": [outcome(1), FAILED], "torch": [outcome(3), outcome(9)]},
                               PLAN)
        self.assertEqual(made["torch / tutti"]["max"], 3.0)
        self.assertEqual(made["tutti"]["failures"], ["a rank died"])
        self.assertEqual(made["torch"]["step_ms"]["max"], 9000)

    def test_only_failures_make_no_figures(self):
        made = summary.figures({"tutti": [outcome(1)], "torch": [FAILED]}, PLAN)
        self.assertNotIn("torch / tutti", made)
        self.assertNotIn("step_ms", made["torch"])

    def test_peers_that_never_ended_are_no_comparison(self):
        compared = load_script().compared
        self.assertTrue(compared({"f32": {"tutti": [outcome(1)], "torch": [FAILED, outcome(1)]}}))
        self.assertFalse(compared({"f32": {"tutti": [outcome(1)], "torch": [FAILED]}}))
        self.assertFalse(compared({"f32": {"tutti": [outcome(1)]}}))

    def test_tokens_per_second_are_of_all_ranks(self):
        made = summary.figures({"tutti": [outcome(0.5)]}, PLAN)
        self.assertEqual(made["tutti"]["tokens_per_second"]["median"], 2 * 8 * 256 / 0.5)

    def test_losses_that_are_not_near_are_noticed(self):
        for theirs, near in ((3.0, True), (3.2, True), (4.0, False), (2.0, False)):
            made = summary.figures({"tutti": [outcome(1)], "torch": [outcome(1, theirs)]}, PLAN)
            self.assertEqual(made["losses_are_near"], near, theirs)

    def test_the_median_is_not_moved_by_one_slow_step(self):
        self.assertEqual(launches.Outcome([1, 1, 50, 1, 1]).step_s(), 1)


# Plays `tutti run -n 2 -- tutti train run.toml`: steps of 10 ms after slow ones of the warm-up.
TUTTI = """\
    import json, pathlib, re, sys
    run = pathlib.Path(sys.argv[-1]).read_text()
    number = lambda key: int(re.search(rf"^{key} = (\\d+)$", run, re.M).group(1))
    assert number("dp_shard") == 2 and number("global_batch") == 2 * number("micro_batch"), run
    assert sys.argv[1:5] == ["run", "-n", "2", "--"] and sys.argv[6] == "train", sys.argv
    folder = json.loads(re.search(r"^dir = (.*)$", run, re.M).group(1))
    with open(folder + "/metrics.jsonl", "w") as out:
        for step in range(number("steps") - LACKING):
            seconds = 0.01 if step >= number("warmup") else 5.0
            out.write(json.dumps({"step": step, "loss": 3.0, "seconds": seconds}) + "\\n")
    sys.exit(CODE)
    """

# Plays an interpreter that has torch.
TORCH = """\
    import json, os, sys
    if sys.argv[1] == "-c":
        print("9.9 True")
    elif os.environ["RANK"] == "0":
        assert os.environ["OMP_NUM_THREADS"] == "1" and os.environ["WORLD_SIZE"] == "2"
        steps = int(sys.argv[sys.argv.index("--steps") + 1])
        warmup = int(sys.argv[sys.argv.index("--warmup") + 1])
        times = [5.0] * warmup + [0.02] * (steps - warmup)
        print(json.dumps({"parameters": 7, "times": times, "losses": [3.1] * steps}))
    """


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-train-compare-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.corpus = self.folder / "text"
        self.corpus.write_text("a text")
        self.torch = self.program("torch", TORCH)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(text))
        path.chmod(0o755)
        return str(path)

    def tutti(self, lacking=0, code=0):
        return self.program("tutti", TUTTI.replace("LACKING", str(lacking))
                            .replace("CODE", str(code)))

    def run_script(self, tutti, *more):
        """(exit status, what it printed, its script)"""
        script = load_script()
        script.HERE = self.folder
        script.ROOT = self.folder
        arguments = ["train-compare", "--tutti", tutti, "--corpus", str(self.corpus), "--launches",
                     "3", "--steps", "4", "--warmup", "2", "--model", str(HERE / "bytes-3m"), *more]
        out = io.StringIO()
        with mock.patch.object(sys, "argv", arguments), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(out):
            code = script.main()
        return code, out.getvalue()

    def test_both_sides_take_turns_and_are_compared(self):
        code, told = self.run_script(self.tutti(), "--python", self.torch)
        self.assertEqual(code, 0, told)
        order = re.findall(r"^f32 (tutti|torch) (\d)/3", told, re.MULTILINE)
        self.assertEqual(order, [("tutti", "1"), ("torch", "1"), ("torch", "2"), ("tutti", "2"),
                                 ("tutti", "3"), ("torch", "3")])
        self.assertIn("PyTorch's step takes 2.00 (2.00..2.00) of Tutti's time", told)

    def test_a_record_has_both_forms_and_tells_no_paths(self):
        code, told = self.run_script(self.tutti(), "--python", self.torch, "--record", "x")
        self.assertEqual(code, 0, told)
        (folder,) = (self.folder / "results").glob("*-train-x")
        text = (folder / "result.md").read_text() + (folder / "result.json").read_text()
        self.assertNotIn(str(self.folder), text)
        kept = json.loads((folder / "result.json").read_text())
        self.assertEqual(kept["command"], "perf/train-compare --launches 3 --steps 4 --warmup 2 "
                                          "--record x")
        self.assertEqual(kept["types"]["f32"]["tutti"]["step_ms"]["median"], 10.0)
        self.assertEqual(kept["types"]["f32"]["torch"]["parameters"], 7)

    def test_an_abbreviation_which_would_put_a_path_into_the_record_is_refused(self):
        with self.assertRaises(SystemExit) as refused:
            self.run_script(self.tutti(), "--python", self.torch, "--corp", str(self.corpus))
        self.assertEqual(refused.exception.code, 2)

    def test_without_torch_tutti_is_measured_and_the_reason_told(self):
        lacks = self.program("lacks", "import sys\nsys.exit('No module named torch')\n")
        code, told = self.run_script(self.tutti(), "--python", lacks)
        self.assertEqual(code, 3, told)
        self.assertIn("there is no PyTorch to compare with", told)
        self.assertIn("No module named torch", told)
        self.assertIn("| f32 | tutti | 10.0", told)

    def test_a_tutti_that_fails_or_tells_too_few_steps_is_no_result(self):
        for tutti in (self.tutti(code=3), self.tutti(lacking=1)):
            code, told = self.run_script(tutti, "--python", self.torch)
            self.assertEqual(code, 1, told)
            self.assertIn("a launch of tutti failed", told)

    def test_a_launch_that_does_not_end_is_ended(self):
        sleeper = self.program("sleeper", "import time\ntime.sleep(60)\n")
        begin = time.monotonic()
        with mock.patch.object(launches, "LIMIT_S", 0.5):
            _, failure = launches.run_all([([sleeper], {}), ([sleeper], {})])
        self.assertIn("no end after", failure)
        self.assertLess(time.monotonic() - begin, 30)


# What the model of the other side computes, asked of an interpreter that has torch.
MODEL = """
import json, sys, torch
import torch_trainer
torch.manual_seed(1)
config = json.load(open(sys.argv[1]))
model = torch_trainer.Model(config, 32, torch.float32)
tokens = torch.randint(0, 256, (2, 32))
x = model.embedding(tokens)
changed = x.detach().clone(); changed[:, 20] += 1
def through(x):
    for block in model.blocks: x = block(x, (model.cosines, model.sines), model.mask)
    return x
moved = (through(x.detach()) - through(changed)).abs().amax(dim=(0, 2))
print(json.dumps({"parameters": sum(p.numel() for p in model.parameters()),
                  "before": moved[:20].max().item(), "after": moved[20:].min().item(),
                  "loss": model(tokens, tokens).item()}))
"""


class Model(unittest.TestCase):
    def setUp(self):
        found = launches.find_torch(None)
        if not found.python:
            self.skipTest(found.reason)
        told = subprocess.run([found.python, "-B", "-c", MODEL, str(HERE / "bytes-3m/config.json")],
                              cwd=HERE, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.told = json.loads(told.stdout)

    def test_it_has_as_many_parameters_as_ours_and_sees_no_later_token(self):
        # 2 * 256 * 192 of tokens, 13 norms, 6 blocks of q, k, v, o and three matrices of the MLP.
        self.assertEqual(self.told["parameters"],
                         2 * 256 * 192 + 13 * 192 +
                         6 * (192 * (192 + 96 + 96 + 192) + 3 * 192 * 512))
        self.assertLess(self.told["before"], 1e-6)
        self.assertGreater(self.told["after"], 1e-6)
        self.assertLess(abs(self.told["loss"] - 5.545), 0.3)  # knows nothing: log(256)


if __name__ == "__main__":
    unittest.main()
