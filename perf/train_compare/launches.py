"""Launches one side of a comparison, all its ranks, and collects its step times and losses.

Both sides run on one thread for each rank; a launch that does not end is ended, its whole group of
processes. Knows nothing of what the figures mean.
"""
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile

import lifetime

LIMIT_S = 300  # of a launch
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
RATE = 1e-3


@dataclasses.dataclass
class Outcome:
    """Of one launch. `times` are seconds of the steps after the warm-up, as rank 0 saw them."""
    times: list = dataclasses.field(default_factory=list)
    losses: list = dataclasses.field(default_factory=list)  # of all steps
    parameters: int = 0
    failure: str = ""

    def step_s(self):
        return statistics.median(self.times) if self.times else None

    def fastest_s(self):
        """What a step takes when nothing else gets in its way, on a busy machine as well."""
        return min(self.times) if self.times else None

    def told(self):
        if self.failure:
            return f"failed: {self.failure}"
        return (f"{1e3 * self.step_s():.1f} ms, at best {1e3 * self.fastest_s():.1f}, "
                f"loss {self.losses[-1]:.3f} at the end")


@dataclasses.dataclass
class Torch:
    python: str = ""
    version: str = ""
    reason: str = ""


def find_torch(named):
    """The first interpreter that can import torch, or why none can."""
    found = named or [sys.executable, "/usr/bin/python3", shutil.which("python3") or ""]
    reasons = []
    for python in dict.fromkeys(name for name in found if name):
        command = [python, "-c", "import numpy, torch, torch.distributed as d; "
                                 "print(torch.__version__, d.is_gloo_available())"]
        try:
            told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(f"{python}: {error}")
            continue
        words = told.stdout.split()
        if told.returncode == 0 and words[1:] == ["True"]:
            return Torch(python, words[0])
        last = told.stderr.strip().splitlines()[-1:] or ["it has no Gloo"]
        reasons.append(f"{python}: {last[0]}")
    return Torch(reason="; ".join(reasons) + " (Debian has it as python3-torch)")


def revision(root):
    """That of the sources, which need not be what was built."""
    def git(*arguments):
        told = subprocess.run(["git", "--no-optional-locks", "-C", str(root), *arguments],
                              capture_output=True, text=True, check=False)
        return told.stdout.strip()
    return git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "-s") else "")


def run_all(commands):
    """Runs the commands side by side, each (arguments, environment): (their outputs, failure)."""
    running = [subprocess.Popen(arguments, env={**os.environ, **ONE_THREAD, **environment},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                start_new_session=True, preexec_fn=functools.partial(
                                    lifetime.end_with, os.getpid(), signal.SIGTERM))
               for arguments, environment in commands]
    outputs, failure = [], ""
    try:
        for process in running:
            try:
                output, _ = process.communicate(timeout=1 if failure else LIMIT_S)
            except subprocess.TimeoutExpired:
                failure = failure or f"no end after {LIMIT_S} s"
                end(process)
                output, _ = process.communicate()
            if process.returncode and not failure:
                failure = (output.strip().splitlines() or ["no output"])[-1][:200]
            outputs.append(output)
    finally:  # Ctrl-C, too
        for process in running:
            end(process)
    return outputs, failure


def end(process):
    if process.poll() is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


# ---- Tutti ---------------------------------------------------------------------------------------

RUN = """[model]
hf = {model}
load_weights = false
[data]
train = {corpus}
seq_len = {sequence}
[train]
steps = {steps}
global_batch = {batch}
micro_batch = {rows}
dtype = "{dtype}"
[optim]
lr = {rate}
warmup = {warmup}
[parallel]
dp_shard = {ranks}
[checkpoint]
resume = "never"
[log]
dir = {log}
every = {steps}
"""


def tutti(options, dtype):
    with tempfile.TemporaryDirectory(prefix="tutti-train-compare-") as folder:
        run = pathlib.Path(folder) / "run.toml"
        run.write_text(RUN.format(
            model=json.dumps(str(options.model)), corpus=json.dumps(str(options.corpus)),
            sequence=options.sequence, steps=options.steps + options.warmup,
            batch=options.rows * options.ranks, rows=options.rows, dtype=dtype, rate=RATE,
            warmup=max(options.warmup, 1), ranks=options.ranks, log=json.dumps(folder)),
            encoding="utf-8")
        program = str(options.tutti)
        command = [program, "run", "-n", str(options.ranks), "--", program, "train", str(run)]
        outputs, failure = run_all([(command, {})])
        if failure:
            return Outcome(failure=failure)
        return read_metrics(pathlib.Path(folder) / "metrics.jsonl", options, outputs[0])


def read_metrics(path, options, output):
    """Every step must be there: a rate of some of them would flatter."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        return Outcome(failure=str(error))
    steps = [line for line in lines if "seconds" in line]
    if len(steps) != options.steps + options.warmup:
        return Outcome(failure=f"{len(steps)} steps were told: {output.strip()[-200:]}")
    return Outcome([line["seconds"] for line in steps[options.warmup:]],
                   [line["loss"] for line in steps])


# ---- PyTorch -------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torch(options, dtype, python):
    command = [python, str(pathlib.Path(__file__).with_name("torch_trainer.py")),
               "--model", str(options.model / "config.json"), "--corpus", str(options.corpus),
               "--sequence", str(options.sequence), "--rows", str(options.rows),
               "--steps", str(options.steps + options.warmup), "--lr", str(RATE),
               "--warmup", str(max(options.warmup, 1)), "--dtype", dtype]
    port = str(free_port())
    ranks = [(command, {"RANK": str(rank), "WORLD_SIZE": str(options.ranks),
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
             for rank in range(options.ranks)]
    outputs, failure = run_all(ranks)
    if failure:
        return Outcome(failure=failure)
    try:
        told = json.loads(outputs[0].strip().splitlines()[-1])
    except (IndexError, ValueError):
        return Outcome(failure=f"it told: {outputs[0].strip()[-200:]}")
    return Outcome(told["times"][options.warmup:], told["losses"], told["parameters"])
