#!/usr/bin/env python3
"""Kills ranks of real jobs at random moments, and judges how the others fare.

Every survivor must return an error that names a rank that died, then shrink its communicator and
do a collective that is right, and leave nothing behind: no process, no name in /dev/shm, no open
descriptor.
Times are measured and printed; they are no reason to fail.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

NOTE = struct.Struct("<qqqiiiiiiiiii160s")
RANKS_MAX = 16
SHARES_PLAIN = os.environ.get("TUTTI_SHARE_HEAP") == "1"
MISMATCH, TIMEOUT, PEER_LOST, ABORTED = 3, 4, 5, 6
KINDS = ["loop", "loop", "loop", "startup", "split", "abort", "shrink"]
# Of the victim's life so far, by kind: when it dies at the latest. Units: us.
HORIZONS = {"mismatch": 1000, "loop": 60_000, "startup": 60_000, "split": 60_000,
            "abort": 20_000, "shrink": 20_000, "stopped": 40_000}


class Note:
    def __init__(self, raw):
        (self.died_ns, self.error_ns, self.shrunk_ns, self.code, self.culprit, self.survivors,
         self.right, self.files_before, self.files_after, self.finished, self.calls,
         self.touched,
         self.process, text) = NOTE.unpack(raw)
        self.text = text.split(b"\0")[0].decode(errors="replace")


def names_in_shm():
    """Files of ours: other programs of the machine use the folder, too, while a job runs, and
    perf/compare keeps folders there."""
    try:
        return {entry.name for entry in os.scandir("/dev/shm")
                if "tutti" in entry.name and not entry.is_dir()}
    except FileNotFoundError:
        return set()


class Round:
    """One job, and what was noted of it."""

    def __init__(self, options, seed):
        dice = random.Random(seed)
        self.seed = seed
        self.ranks = options.ranks
        self.transport = dice.choice(options.transports)
        self.kind = dice.choice(options.kinds)
        self.first = dice.randrange(self.ranks)
        self.second = dice.choice([r for r in range(self.ranks) if r != self.first])
        horizon = HORIZONS[self.kind]
        self.after_us = dice.randrange(dice.choice([horizon // 20, horizon]))
        self.second_after_us = dice.randrange(dice.choice([300, 3_000, 10_000]))
        self.troubles = []

    def run(self, options):
        before = names_in_shm()
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(NOTE.size * RANKS_MAX)
            command = [options.tutti, "run", "-n", str(self.ranks), "--on-failure", "continue",
                       "--timeout", str(options.limit_s), "--grace", "1", "--prefix", "none",
                       "--transport", self.transport, "--", options.target, file.name, self.kind,
                       str(self.seed), str(self.first), str(self.after_us), str(self.second),
                       str(self.second_after_us)]
            self.command = " ".join(command)
            settings = {"TUTTI_LOG": "error", "TUTTI_CHECK": options.check}
            if self.kind == "stopped":
                settings["TUTTI_TIMEOUT_MS"] = "600"  # the first call on a busy machine
            ended = subprocess.run(command, capture_output=True, text=True,
                                   env={**os.environ, **settings})
            raw = file.read()
        self.notes = [Note(raw[i * NOTE.size:(i + 1) * NOTE.size]) for i in range(self.ranks)]
        self.output = ended.stdout + ended.stderr
        if ended.returncode != 0:
            self.troubles.append(f"tutti run ended with {ended.returncode}")
        left = names_in_shm() - before
        if left:
            self.troubles.append(f"left in /dev/shm: {sorted(left)}")
        if self.kind == "stopped":
            self.judge_stopped()
        elif self.kind == "mismatch":
            self.judge_mismatch(options.check == "strict")
        else:
            self.judge()

    def judge_stopped(self):
        for rank, note in enumerate(self.notes):
            if not note.finished or (rank != self.first and note.code != TIMEOUT):
                self.troubles.append(f"rank {rank}: code {note.code}: {note.text}")
            if rank != self.first and note.touched:
                self.troubles.append(f"rank {rank}: {note.touched} elements of its memory were "
                                     "written after its error")

    def judge_mismatch(self, strict):
        for rank, note in enumerate(self.notes):
            if not note.finished or note.code != MISMATCH:
                self.troubles.append(f"rank {rank}: code {note.code}: {note.text}")
            if strict and note.touched:
                self.troubles.append(f"rank {rank}: {note.touched} elements of the output were "
                                     f"written: {note.text}")

    def dead(self):
        return [r for r, note in enumerate(self.notes) if note.died_ns != 0]

    def judge(self):
        dead = self.dead()
        # With or without those that died just after.
        went_on = {sum(note.right for note in self.notes),
                   sum(note.right for rank, note in enumerate(self.notes) if rank not in dead)}
        aborter = (self.first + 1) % self.ranks
        for rank, note in enumerate(self.notes):
            if rank in dead:
                continue
            if not note.finished:
                self.troubles.append(f"rank {rank} did not come to its end: {note.text}")
                continue
            named = note.code == PEER_LOST and note.culprit in dead
            if self.kind == "abort":
                named |= note.code in (ABORTED, PEER_LOST) and note.culprit == aborter
            if not named:
                self.troubles.append(f"rank {rank}: code {note.code}, culprit {note.culprit}, "
                                     f"dead {dead}: {note.text}")
            # Of shared plain buffers a failure may close the file that was open before it.
            closed = SHARES_PLAIN and note.files_after < note.files_before
            if note.files_after != note.files_before and not closed:
                self.troubles.append(f"rank {rank} has {note.files_after} descriptors, had "
                                     f"{note.files_before}")
            joined = note.calls > 0
            if self.kind != "abort" and joined:
                if not note.right:
                    self.troubles.append(f"rank {rank}: no right result after: {note.text}")
                elif note.survivors not in went_on:
                    self.troubles.append(f"rank {rank}: {note.survivors} survivors, but {went_on} "
                                         "ranks had a right result")

    def error_ms(self):
        """From the death of whom it names to the error, of each survivor."""
        for rank, note in enumerate(self.notes):
            if rank not in self.dead() and note.finished and note.culprit in self.dead():
                yield max(0, note.error_ns - self.notes[note.culprit].died_ns) / 1e6

    def shrink_ms(self):
        """From its error to a right result, of each survivor; later deaths start it anew."""
        last = max((self.notes[r].died_ns for r in self.dead()), default=0)
        for rank, note in enumerate(self.notes):
            if rank not in self.dead() and note.right:
                yield max(0, note.shrunk_ns - max(note.error_ns, last)) / 1e6


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def figures(values):
    return {"count": len(values), "p50": percentile(values, 0.5), "p99": percentile(values, 0.99),
            "max": max(values, default=float("nan"))}


def parse():
    here = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(here, "..", "..", "build", "release", "bin")
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="ranks to kill in all")
    parser.add_argument("--mismatches", type=int,
                        help="instead: so many jobs in which a rank makes another call")
    parser.add_argument("--stops", type=int,
                        help="instead: so many jobs in which a rank stands still, and wakes up "
                             "when the others have given up")
    parser.add_argument("--check", choices=["late", "strict"], default="late",
                        help="how such calls are found (TUTTI_CHECK)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--transports", type=lambda s: s.split(","), default=["shm", "tcp"])
    parser.add_argument("--kinds", type=lambda s: s.split(","), default=KINDS,
                        help="of " + ", ".join(sorted(set(KINDS))))
    parser.add_argument("--limit-s", type=int, default=60, help="of one job, before it is ended")
    parser.add_argument("--tutti", default=os.path.join(built, "tutti"))
    parser.add_argument("--target", default=os.path.join(built, "kill_target"))
    parser.add_argument("--json", help="file for the figures")
    return parser.parse_args()


def main():
    options = parse()
    kills, seed, troubles = 0, options.first_seed, 0
    jobs, by_kind, errors, shrinks = 0, {}, {}, {}
    began = time.time()
    if options.mismatches:
        options.kinds = ["mismatch"]
    if options.stops:
        options.kinds = ["stopped"]
    whole_jobs = options.mismatches or options.stops
    while jobs < whole_jobs if whole_jobs else kills < options.kills:
        one = Round(options, seed)
        one.run(options)
        jobs += 1
        seed += 1
        died = len(one.dead())
        kills += died
        key = (one.transport, one.kind)
        by_kind[key] = by_kind.get(key, 0) + (1 if whole_jobs else died)
        errors.setdefault(one.transport, []).extend(one.error_ms())
        shrinks.setdefault(one.transport, []).extend(one.shrink_ms())
        if one.troubles:
            troubles += 1
            print(f"\nseed {one.seed}: {one.command}")
            for trouble in one.troubles:
                print(f"    {trouble}")
            print("    " + one.output.strip().replace("\n", "\n    "))
        if sys.stderr.isatty():
            print(f"\r{kills} of {options.kills} kills, {troubles} troubles", end="",
                  file=sys.stderr)
    killed = "" if whole_jobs else f", {kills} ranks killed"
    print(f"{jobs} jobs of {options.ranks} ranks{killed} in {time.time() - began:.0f} s: "
          f"{troubles} troubles")
    for (transport, kind), count in sorted(by_kind.items()):
        print(f"  {transport} {kind}: {count} {'jobs' if whole_jobs else 'kills'}")
    result = {"jobs": jobs, "kills": kills, "troubles": troubles}
    measured = [("death to error", errors), ("error to right result", shrinks)]
    for title, all_of_them in [] if whole_jobs else measured:
        for transport, values in sorted(all_of_them.items()):
            f = figures(values)
            result[f"{title}, {transport}, ms"] = f
            print(f"{title}, {transport}: {f['count']} ranks, p50 {f['p50']:.2f} ms, "
                  f"p99 {f['p99']:.2f} ms, max {f['max']:.2f} ms")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
