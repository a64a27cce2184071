"""Starts contenders in turn and collects what they report.

All contenders take part in every round, each time beginning with another one, so that what the
machine does meanwhile falls on all of them alike. Knows nothing of what the figures mean.
"""
import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import awake
import builds
import lifetime
import nearness

PREFIX = "tutti-compare-"  # of a launch's folder
YOUNG_S = 60
MOST_ROUNDS = 3  # times those asked for, where cores move (nearness.py)
LAUNCH_OVERHEAD_S = 1.0  # starting ranks, connecting, ending
COST_S_PER_BYTE = 0.6e-9  # of a call with its owner's writing and reading, roughly
# As in main.cc: from here on, one call counts and one does not; below, so many do not count.
DEAR_BYTES = 128 << 20
WARM_UP_CALLS = 10
SPARE = 0.25  # of the time, for moments in which the machine is slow


@dataclasses.dataclass
class Plan:
    """What one run measures."""
    operations: list
    types: list
    sizes: list
    launches: int
    seconds_per_size: float
    least_calls: int
    limit_s: float  # for the whole run; a round that would overrun it is not begun


@dataclasses.dataclass
class Outcome:
    """What all launches of one contender gave."""
    library: str = ""
    cpus: list = dataclasses.field(default_factory=list)
    # Per round {(operation, type, bytes): row}, or None.
    launches: list = dataclasses.field(default_factory=list)
    unable: dict = dataclasses.field(default_factory=dict)  # (operation, type): reason
    failures: list = dataclasses.field(default_factory=list)  # reasons

    def ran(self):
        return any(self.launches)


def forced_s(kinds, sizes, ranks, least_calls):
    """What a launch takes that makes no more calls than it must; fresh pages are like a call."""
    calls = [3 if size >= DEAR_BYTES else least_calls + WARM_UP_CALLS for size in sizes]
    moved = sum(size * count for size, count in zip(sizes, calls))
    return LAUNCH_OVERHEAD_S + kinds * moved * COST_S_PER_BYTE * ranks / 2


def seconds_per_size(share_s, kinds, sizes, ranks, least_calls):
    """How long to call each size where a launch has that share of the time."""
    free = (1 - SPARE) * share_s - forced_s(kinds, sizes, ranks, least_calls)
    # A floor tries all of its ways, which takes as long again.
    return min(max(free / (1.6 * kinds * len(sizes)), 0.02), 0.5)


class Failed(Exception):
    """Why a launch gave nothing."""


def stop(process):
    """Ends a launcher and what it has started."""
    for send in (lambda: process.terminate(), lambda: os.killpg(process.pid, signal.SIGKILL)):
        try:
            send()
            process.wait(timeout=5)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return


def last_words(log):
    """What a launch said, without rulers and blank lines, short."""
    lines = [" ".join(line.split()) for line in log.read_text(errors="replace").splitlines()]
    lines = [line.replace(str(builds.ROOT) + "/", "") for line in lines if line.strip("-=* ")]
    telling = [line for line in lines if any(
        word in line.lower() for word in ("error", "fail", "cannot", "not ", "no "))] or lines[-2:]
    return " / ".join(telling[:2])[:300] or "it said nothing"


def read_report(path):
    """What the launch said of itself, {(operation, type, bytes): row}, what it is unable to do."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rows = {(row["operation"], row["type"], row["bytes"]): row
            for row in lines[1:] if "unable" not in row}
    unable = {(row["operation"], row["type"]): row["unable"]
              for row in lines[1:] if "unable" in row}
    return lines[0], rows, unable


def shared_memory():
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


def lock(path):
    """A file descriptor that keeps a folder ours; None if it is somebody's. Ends with us."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        return None
    return folder


@contextlib.contextmanager
def scratch():
    """A folder in shared memory for the time of a launch."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=shared_memory()) as folder:
        held = lock(folder)
        try:
            yield pathlib.Path(folder)
        finally:
            if held is not None:
                os.close(held)


def remove_leftovers(where=None):
    """Removes the folders of runs that were killed: nobody holds them any more."""
    for path in pathlib.Path(where or shared_memory()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            # A young one may not be locked yet.
            if path.is_symlink() or time.time() - path.stat().st_mtime < YOUNG_S:
                continue
            held = lock(path)
            if held is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(held)


class Ending:
    """Being told to end is no reason to leave contenders running or folders behind."""
    starting = False  # a process that nobody holds yet
    told = 0

    @classmethod
    def hear(cls, number, _):
        cls.told = number
        if not cls.starting:
            sys.exit(128 + number)

    @classmethod
    def start(cls, *arguments, **options):
        """Popen(); who is told to end from here on ends in started()."""
        cls.starting = True
        try:
            return subprocess.Popen(*arguments, **options)
        except BaseException:
            cls.starting = False
            raise

    @classmethod
    def started(cls):
        """Somebody holds the process now."""
        cls.starting = False
        if cls.told:
            sys.exit(128 + cls.told)


def end_in_order():
    for told in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(told, Ending.hear)


def launch(contender, plan, patience_s):
    """One launch. Raises Failed."""
    log = builds.OWN_BUILDS / "logs" / (contender.name.replace(" ", "-") + ".run.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with scratch() as folder:
        stage, report = folder / "stage", folder / "report"
        meeting = folder / "meeting"  # for libraries whose ranks meet by files
        stage.touch()
        meeting.mkdir()
        command = contender.command([
            "--stage", str(stage), "--report", str(report),
            "--operations", ",".join(contender.work(plan.operations)),
            "--types", ",".join(plan.types),
            "--sizes", ",".join(str(size) for size in plan.sizes),
            "--seconds", f"{plan.seconds_per_size:.4f}", "--least-calls", str(plan.least_calls)])
        with open(log, "w", encoding="utf-8") as out:
            process = Ending.start(command, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=functools.partial(lifetime.end_with, os.getpid(),
                                                                signal.SIGTERM),
                                   env={**os.environ, "COMPARE_FOLDER": str(meeting),
                                        **dict(contender.environment)})
        try:
            Ending.started()
            code = process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {patience_s:.0f} s") from None
        finally:
            if process.poll() is None:
                stop(process)
        if code != 0:
            raise Failed(f"exit code {code}: {last_words(log)}")
        said, rows, unable = read_report(report)
    wrong = {" ".join(map(str, work)): row["wrong"] for work, row in rows.items() if row["wrong"]}
    if wrong:
        raise Failed(f"wrong results, elements by what was done: {wrong}")
    return said, rows, unable


def run_round(turn, present, outcomes, plan, patience_s, quiet):
    for place in range(len(present)):
        contender = present[(turn + place) % len(present)]
        outcome = outcomes[contender.name]
        if outcome.failures and not outcome.ran():
            continue  # it could not run at the first try; waiting for it again helps nobody
        quiet.wait()
        try:
            said, rows, unable = launch(contender, plan, patience_s)
        except Failed as reason:
            outcome.failures.append(str(reason))
            outcome.launches.append(None)
            continue
        outcome.library, outcome.cpus = said["library"], said["cpus"]
        outcome.unable = unable
        outcome.launches.append(rows)


def run(present, plan, progress, quiet):
    """{contender's name: Outcome}. `progress` is told a line of text after each round.

    There are as many rounds as the plan says, and more where cores have moved, until so many are
    of one state of the machine.
    """
    outcomes = {contender.name: Outcome() for contender in present}
    with awake.cores_awake():
        run_rounds(present, outcomes, plan, progress, quiet)
    return outcomes


def run_rounds(present, outcomes, plan, progress, quiet):
    begin = time.monotonic()
    longest = 0.0
    for turn in range(MOST_ROUNDS * plan.launches):
        if nearness.choose(outcomes).rounds >= plan.launches:
            break
        started = time.monotonic()
        left = plan.limit_s - (started - begin)
        if turn > 0 and longest > left:
            progress(f"time is up after {turn} of {plan.launches} rounds")
            break
        run_round(turn, present, outcomes, plan, max(30.0, left / 2), quiet)
        longest = max(longest, time.monotonic() - started)
        progress(f"round {turn + 1} of {plan.launches}: {time.monotonic() - started:.0f} s"
                 f"{said_of_cores(nearness.choose(outcomes))}")


def said_of_cores(choice):
    return f", {choice.rounds} with lines of {choice.kind:.0f} ns" if choice.kind else ""
