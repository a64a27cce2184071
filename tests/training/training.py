"""Training runs as people start them: `tutti train`, alone or as processes of `tutti run`.

Each case is a function below; `--list` names them. A case has a folder of its own with a small
model and run.toml, and looks at what a person would: exit codes, what is printed, metrics.jsonl,
and `tutti checkpoint diff`.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

LLAMA = {
    "model_type": "llama", "vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
                   "router_aux_loss_coef": 0.02}
STEPS = 20
RUN = f"""
[model]
hf = "model"
load_weights = false
[data]
train = "corpus.txt"
seq_len = 16
[train]
steps = {STEPS}
global_batch = 8
gemm = "builtin"
[optim]
lr = 3e-3
warmup = 2
[comm]
timeout_s = 50
"""
TOLERANCE = 1e-5  # of losses, where a layout adds in another order
PATIENCE_S = 50   # for one program, on a machine that is busy


class Failure(Exception):
    """What a case expected and did not find."""


def expect(true, what):
    if not true:
        raise Failure(what)


class Folder:
    """Where a case's runs happen."""

    def __init__(self, tutti, path, model=None):
        self.tutti = tutti
        self.path = pathlib.Path(path)
        (self.path / "model").mkdir()
        (self.path / "model/config.json").write_text(json.dumps(model or LLAMA))
        words = "the cat sat on a mat, and so did I; ".split(" ")
        text = " ".join(words[i * i % 7 + i % 3] for i in range(6000))
        (self.path / "corpus.txt").write_text(text)
        (self.path / "run.toml").write_text(RUN)

    def command(self, *keys, ranks=1, options=(), name=None, file="run.toml"):
        """The command line of a run, which writes to NAME.log and NAME.ck."""
        launcher = [self.tutti, "run", "-n", str(ranks), "--"] if ranks > 1 else []
        files = [f"log.dir={name}.log", f"checkpoint.dir={name}.ck"] if name else []
        sets = [word for key in [*keys, *files] for word in ("--set", key)]
        return [*launcher, self.tutti, "train", file, *options, *sets]

    def call(self, *command, code=0, environment=None):
        """Runs a program to its end; returns what it printed."""
        done = subprocess.run(command, cwd=self.path, capture_output=True, timeout=PATIENCE_S,
                              env=os.environ | (environment or {}), check=False)
        text = (done.stdout + done.stderr).decode(errors="replace")
        expect(done.returncode == code,
               f"exit code {done.returncode}, not {code}, of {' '.join(command)}:\n{text}")
        return text

    def train(self, *keys, code=0, environment=None, **more):
        return self.call(*self.command(*keys, **more), code=code, environment=environment)

    def metrics(self, name):
        """The lines of a run's log that are whole."""
        path = self.path / f"{name}.log/metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def losses(self, name):
        """By step, exactly."""
        lines = self.metrics(name)
        expect([line["step"] for line in lines] == list(range(len(lines))),
               f"{name}: steps {[line['step'] for line in lines]}")
        return [line["loss_hex"] for line in lines]


def expect_same(folder, first, second, steps=STEPS):
    """That two runs are equal to the bit, in losses, weights and the optimizer's memory."""
    expect(len(folder.losses(first)) == steps, f"{first} has not {steps} steps")
    expect(folder.losses(first) == folder.losses(second),
           f"losses differ:\n{folder.losses(first)}\n{folder.losses(second)}")
    text = folder.call(folder.tutti, "checkpoint", "diff", f"{first}.ck", f"{second}.ck")
    expect("equal to the bit" in text, text)


def expect_near(folder, first, second, steps=STEPS):
    """That two runs have losses that differ by no more than rounding."""
    pairs = list(zip(folder.metrics(first), folder.metrics(second)))
    expect(len(pairs) == steps, f"{len(pairs)} steps, not {steps}")
    apart = [abs(a["loss"] - b["loss"]) / abs(a["loss"]) for a, b in pairs]
    expect(max(apart) <= TOLERANCE, f"losses differ, relatively by {apart}")


def compare(folder, ranks, *keys, same=True, environment=None):
    """A layout of processes against one process."""
    if not folder.metrics("alone"):
        folder.train(name="alone")
    name = f"layout_of_{ranks}"
    folder.train(*keys, name=name, ranks=ranks, environment=environment)
    (expect_same if same else expect_near)(folder, "alone", name)


def compare_numbers(folder, *keys):
    for ranks in (2, 4, 8):
        compare(folder, ranks, *keys)


# ---- Layouts ----

def ddp(folder):
    compare_numbers(folder, "parallel.dp_replicate=-1", "parallel.dp_shard=1")


def zero1(folder):
    compare_numbers(folder, "parallel.zero=1")


def zero2(folder):
    compare_numbers(folder, "parallel.zero=2")


def zero3(folder):
    compare(folder, 4, "parallel.zero=3")


def zero3_of_8(folder):
    compare_numbers(folder, "parallel.zero=3")


def zero3_tcp(folder):
    compare(folder, 2, "parallel.zero=3", "parallel.transport=tcp")


def hsdp(folder):
    for ranks in (4, 8):
        compare(folder, ranks, "parallel.zero=3", "parallel.dp_replicate=2")


def pp2(folder):
    for schedule in ("gpipe", "zb-h1"):
        compare(folder, 2, "parallel.pp=2", f"parallel.schedule={schedule}",
                "checkpoint.resume=never")


def tp2_pp2_dp2(folder):
    compare(folder, 8, "parallel.tp=2", "parallel.pp=2", same=False)


def fsdp2_tp2_pp2(folder):
    compare(folder, 8, "parallel.tp=2", "parallel.pp=2", "parallel.zero=3",
            "parallel.sequence_parallel=true", same=False)


def ep2_tp2_pp2(folder):
    compare(folder, 8, "parallel.tp=2", "parallel.pp=2", "parallel.ep=2", same=False)


def threads(folder):
    """Ranks that are threads train what processes do."""
    folder.train("parallel.zero=3", name="processes", ranks=2)
    folder.train("parallel.zero=3", name="threads", options=["--ranks", "2"])
    expect_same(folder, "processes", "threads")


def launchers(folder):
    """Who the ranks are may come from torchrun's variables alone."""
    folder.train(name="alone")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [subprocess.Popen(folder.command(name="layout"), cwd=folder.path,
                              env=os.environ | place | {"RANK": str(rank)},
                              stdout=subprocess.DEVNULL) for rank in range(2)]
    codes = [rank.wait(PATIENCE_S) for rank in ranks]
    expect(codes == [0, 0], f"exit codes {codes}")
    expect_same(folder, "alone", "layout")


# ---- Runs that do not come to their end ----

LONG = 150  # steps, so that a run is still going when it is interrupted


def step_back():
    """Lets whoever watches this process go first: a run of a tenth of a second is over, else,
    before it is interrupted, where others need the processors as well."""
    os.nice(5)
    with contextlib.suppress(OSError):  # sessions may have shares of their own, told there
        pathlib.Path("/proc/self/autogroup").write_text("5")


@contextlib.contextmanager
def started(folder, steps, *keys, **more):
    """A run that has made some steps. It leads a group of processes, as under a shell."""
    with open(folder.path / "printed", "wb") as printed:
        run = subprocess.Popen(folder.command(*keys, **more), cwd=folder.path, stdout=printed,
                               stderr=subprocess.STDOUT, start_new_session=True,
                               preexec_fn=step_back)
        try:
            until = time.monotonic() + PATIENCE_S
            while len(folder.metrics(more["name"])) < steps and run.poll() is None:
                expect(time.monotonic() < until, f"no {steps} steps in {PATIENCE_S} s")
                time.sleep(0.005)
            expect(run.poll() is None, "the run ended by itself:\n" +
                   (folder.path / "printed").read_text())
            yield run
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()


def resume_and_compare(folder, *keys, **more):
    """Goes on with the run `broken`, and compares it with one that was not interrupted."""
    made = len(folder.metrics("broken"))
    expect(made < LONG, f"all {made} steps were made before the interruption")
    text = folder.train(*keys, name="broken", **more)
    step = re.search(r"resuming after step (\d+) from", text)
    expect(step and 0 < int(step[1]) <= made, f"after {made} steps: {text[:500]}")
    folder.train(*keys, name="whole", **more)
    expect_same(folder, "whole", "broken", LONG)
    return int(step[1])


def kill(folder):
    """SIGKILL to the launcher, which takes its ranks along."""
    keys = (f"train.steps={LONG}", "checkpoint.every=5", "parallel.zero=3")
    with started(folder, 22, *keys, name="broken", ranks=2) as run:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    time.sleep(0.5)  # the ranks hear of it from the kernel
    resume_and_compare(folder, *keys, ranks=2)


def kill_then_other_layout(folder):
    """What two ranks with sharded weights left, four with whole ones go on with."""
    steps = (f"train.steps={LONG}", "checkpoint.every=5")
    with started(folder, 22, *steps, "parallel.zero=3", name="broken", ranks=2) as run:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    time.sleep(0.5)
    resume_and_compare(folder, *steps, "parallel.zero=1", ranks=4)


def kill_one_rank(folder):
    """The others end, naming the one that is gone; the run goes on with fewer ranks."""
    keys = (f"train.steps={LONG}", "checkpoint.every=5", "parallel.zero=3")
    with started(folder, 22, *keys, name="broken", ranks=4) as run:
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        expect(len(children) == 4, f"processes {children}")
        os.kill(int(children[2]), signal.SIGKILL)
        began = time.monotonic()
        code = run.wait(PATIENCE_S)
        took = time.monotonic() - began
    printed = (folder.path / "printed").read_text()
    expect(code == 128 + signal.SIGKILL, f"exit code {code}:\n{printed}")
    expect("rank 2" in printed and took < 20, f"after {took:.1f} s:\n{printed}")
    expect(re.search(r"tutti train: .*rank 2", printed), f"no rank named it:\n{printed}")
    resume_and_compare(folder, *keys, ranks=2)


def interrupt(folder):
    """Ctrl-C: a checkpoint after the step that is being made, and exit code 130."""
    keys = (f"train.steps={LONG}",)
    with started(folder, 10, *keys, name="broken", ranks=2) as run:
        os.killpg(run.pid, signal.SIGINT)
        code = run.wait(PATIENCE_S)
    printed = (folder.path / "printed").read_text()
    expect(code == 130, f"exit code {code}:\n{printed}")
    made = len(folder.metrics("broken"))
    expect(f"stopped after step {made}, as asked" in printed, printed)
    expect(resume_and_compare(folder, *keys, ranks=2) == made, "resumed elsewhere")


def interrupt_alone(folder):
    """The same of one process that hears of it twice at once, as from terminal and launcher."""
    keys = (f"train.steps={LONG}",)
    with started(folder, 10, *keys, name="broken") as run:
        os.kill(run.pid, signal.SIGINT)
        time.sleep(0.002)  # so that they are two
        os.kill(run.pid, signal.SIGINT)
        code = run.wait(PATIENCE_S)
    expect(code == 130, f"exit code {code}")
    resume_and_compare(folder, *keys)


# ---- What cannot be ----

def refusals(folder):
    """Exit code 2, and words that help."""
    text = folder.train("train.stepz=3", code=2)
    expect("stepz" in text and "train.steps" in text, text)
    (folder.path / "wrong.toml").write_text("[trian]\nsteps = 3\n[train]\nmicro_batch = 0\n")
    text = folder.train(file="wrong.toml", code=2)
    expect("wrong.toml:1:" in text and "train" in text and "wrong.toml:4:" in text, text)
    text = folder.train("parallel.tp=2", "parallel.pp=2", ranks=3, code=2)
    expect("pp 2 x dp_replicate 1 x dp_shard 1 x tp 2 = 4" in text and "3 ranks" in text, text)
    text = folder.train(ranks=3, code=2)
    expect("8 = 1 * 3 * 2" in text, text)
    text = folder.train("parallel.schedule=file:none.csv", code=1)
    expect("none.csv" in text, text)
    (folder.path / "odd.csv").write_text("0F0,0B0\n")
    text = folder.train("parallel.schedule=file:odd.csv", code=2)
    expect("odd.csv" in text and "accumulates 8" in text, text)
    expect("cannot read none.toml" in folder.train(file="none.toml", code=1), "names the file")
    text = folder.train(options=["--draw", "x.svg"], code=2)
    expect("--plan" in text, text)


def divergence(folder):
    """Exit code 4, with the step."""
    text = folder.train("optim.name=sgd", "optim.lr=1e6", "optim.clip=0", "optim.warmup=0",
                        "optim.weight_decay=1000", "train.steps=100", ranks=2, code=4)
    expect(re.search(r"step \d+: .*diverged", text), text)


# ---- The other uses ----

def plan_and_verify(folder):
    """Both with threads only, and both tell tables."""
    layout = ("parallel.tp=2", "parallel.pp=2")
    text = folder.train(*layout, options=["--plan", "--ranks", "8", "--draw", "drawn.svg"])
    expect("8 ranks: pp 2 x dp_replicate 1 x dp_shard 2 x tp 2 = 8" in text, text)
    expect("all_reduce gradients" in text and "bubble" in text, text)
    expect((folder.path / "drawn.svg").read_text().startswith("<svg"), "no drawing")
    (folder.path / "own.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")
    text = folder.train("parallel.pp=2", "parallel.schedule=file:own.csv",
                        options=["--plan", "--ranks", "8"])
    expect("bubble 33.3 %" in text, text)
    text = folder.train("parallel.zero=3", options=["--verify", "--ranks", "2"])
    expect("the layout equals one process to the bit" in text, text)
    text = folder.train("parallel.tp=2", options=["--verify", "--ranks", "2"])
    expect("the layout equals one process within the tolerance" in text, text)
    (folder.path / "all.toml").write_text(folder.train(options=["--show"]))
    expect(folder.train(file="all.toml", options=["--show"]) ==
           (folder.path / "all.toml").read_text(), "--show shows what reads to the same")


def checkpoint_tools(folder):
    """A checkpoint of many ranks is told about, compared, written again, and sampled from."""
    folder.train("parallel.tp=2", name="a", ranks=2)
    folder.train("train.seed=2", name="b")
    tutti = folder.tutti
    text = folder.call(tutti, "checkpoint", "inspect", "a.ck")
    expect(f"step {STEPS} ({STEPS} of the optimizer)" in text and "tp 2 = 2" in text, text)
    expect("moment_2 of model.layers.1.mlp.up_proj.weight" in text, text)
    text = folder.call(tutti, "checkpoint", "diff", "a.ck", "b.ck", code=1)
    expect("model.norm.weight" in text and "differ" in text, text)
    folder.call(tutti, "checkpoint", "diff", "a.ck", "none", code=2)
    folder.call(tutti, "checkpoint", "reshard", "a.ck", "again", "--shard-gb", "0.00004")
    expect((folder.path / "again/model.safetensors.index.json").exists(), "not in parts")
    said = [folder.call(tutti, "sample", where, "--prompt", "the cat", "--count", "12",
                        "--seed", "3", "--temperature", "0") for where in ("a.ck", "again")]
    expect(said[0] == said[1] and said[0].startswith("the cat") and len(said[0]) > 8, str(said))
    rows = [folder.call(tutti, "sample", "--logits", "--model", "again", "--tokens", "1,2,3",
                        "--type", each).split("\n") for each in ("f32", "float32", "f64")]
    counts = [len(row.split()) for row in rows[2]]
    expect(rows[0] == rows[1] and counts == [256] * 3 + [0], f"logits: {counts}")
    expect("bf16" in folder.call(tutti, "sample", "again", "--type", "b16", code=1), "the types")
    for options in ((), ("--logits",)):
        text = folder.call(tutti, "sample", "again", *options, "--tokens", "1,2,999", code=1)
        expect("token 999" in text, text)
    text = folder.call(tutti, "sample", "again", "--logits", "--prompt", "x" * 65, code=1)
    expect("64 positions" in text, text)
    # A model that was written is one to begin with.
    folder.train("model.hf=again", "model.load_weights=true", "train.steps=0", name="c")
    folder.call(tutti, "checkpoint", "reshard", "c.ck", "c")
    expect("equal to the bit" in folder.call(tutti, "checkpoint", "diff", "again", "c"), "to c")
    folder.train("model.hf=again", "model.load_weights=true", "train.steps=1", "optim.lr=0",
                 name="d")
    first = folder.metrics("d")[0]["loss"]
    expect(first < folder.metrics("b")[0]["loss"] - 0.1, f"loss {first} of weights that learnt")


CASES = {case.__name__: case for case in (
    ddp, zero1, zero2, zero3, zero3_of_8, zero3_tcp, hsdp, pp2, tp2_pp2_dp2, fsdp2_tp2_pp2,
    ep2_tp2_pp2, threads, launchers, kill, kill_then_other_layout, kill_one_rank, interrupt,
    interrupt_alone, refusals, divergence, plan_and_verify, checkpoint_tools)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tutti", help="the program")
    parser.add_argument("--list", action="store_true", help="name the cases, and stop")
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="all without")
    arguments = parser.parse_args()
    if arguments.list:
        print(";".join(CASES))
        return 0
    failed = 0
    for name in arguments.cases or CASES:
        model = MIXTRAL if name.startswith("ep") else LLAMA
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tutti-training-") as path:
            try:
                CASES[name](Folder(os.path.abspath(arguments.tutti), path, model))
                print(f"{name}: ok, {time.monotonic() - began:.1f} s", flush=True)
            except (Failure, subprocess.TimeoutExpired) as failure:
                failed += 1
                print(f"{name}: FAILED: {failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
