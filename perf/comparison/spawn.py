#!/usr/bin/env python3
"""Starts a program once per rank, for contenders that bring no launcher of their own.

  spawn.py RANKS [--pin] [--batch] [--hosts NAMESPACE=ADDRESS,...] -- PROGRAM ARGUMENT...
  spawn.py --here [--pin] [--hosts NAMESPACE=ADDRESS,...] -- PROGRAM ARGUMENT...
  spawn.py --reach NAMESPACE=ADDRESS,... ADDRESS COMMAND...

Every rank learns from its environment who it is (RANK, WORLD_SIZE) and where all meet
(MASTER_ADDR, MASTER_PORT, and its own COMPARE_ADDRESS). With --pin, each gets a CPU of its own.
With --batch, a thread that wakes up does not push aside the one that has the CPU (SCHED_BATCH).
With --hosts, they go to these network namespaces in turn. With --here, becomes the one rank that an
MPI launcher has started, in that rank's namespace. With --reach, runs a shell command on the host
with that address, as MPI launchers ask of ssh. The exit status is that of the first rank that
fails.
"""
import dataclasses
import os
import secrets
import signal
import socket
import subprocess
import sys
import time

import lifetime

LAUNCHED_RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def parse_hosts(text):
    return [tuple(host.split("=")) for host in text.split(",")]


@dataclasses.dataclass
class Job:
    """What the command line asks for."""
    ranks: int  # 0 for --here
    pin: bool
    batch: bool
    hosts: list  # of (namespace, address)
    program: list


def parse(arguments):
    split = arguments.index("--")
    options, program = arguments[:split], arguments[split + 1:]
    hosts = []
    if "--hosts" in options:
        hosts = parse_hosts(options[options.index("--hosts") + 1])
    ranks = 0 if "--here" in options else int(options[0])
    return Job(ranks, "--pin" in options, "--batch" in options, hosts, program)


def entering(hosts, rank, program):
    """The command that runs `program` where this rank is at home."""
    return ["ip", "netns", "exec", hosts[rank % len(hosts)][0], *program] if hosts else program


def free_port(address):
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def start(job, rank, port):
    addresses = [address for _, address in job.hosts] or ["127.0.0.1"]
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(job.ranks),
                   "MASTER_ADDR": addresses[0], "MASTER_PORT": str(port),
                   "COMPARE_ADDRESS": addresses[rank % len(addresses)]}
    if job.hosts:
        environment["TUTTI_JOB_SECRET_FILE"] = os.path.join(os.environ["COMPARE_FOLDER"], "secret")

    parent = os.getpid()

    def settle():
        lifetime.end_with(parent, signal.SIGKILL)
        if job.pin:
            pin_to(rank)
        if job.batch:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

    return subprocess.Popen(entering(job.hosts, rank, job.program), env=environment,
                            preexec_fn=settle)


def pin_to(rank):
    cpus = sorted(os.sched_getaffinity(0))
    if rank < len(cpus):
        os.sched_setaffinity(0, {cpus[rank]})


def write_secret():
    """Tutti's ranks on several hosts prove to each other that they belong to the job."""
    path = os.path.join(os.environ["COMPARE_FOLDER"], "secret")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))


def reach(hosts, address, command):
    """Other hosts have other names, by which libraries tell them apart."""
    namespace = next(name for name, place in hosts if place == address)
    words = " ".join(command)
    os.execvp("ip", ["ip", "netns", "exec", namespace, "unshare", "--uts", "sh", "-c",
                     f"hostname {namespace} && {words}"])


def become_rank(job):
    """The one that a launcher has started."""
    rank = next(int(os.environ[name]) for name in LAUNCHED_RANK if name in os.environ)
    if job.pin:
        pin_to(rank)
    command = entering(job.hosts, rank, job.program)
    os.execvp(command[0], command)


def wait_for_all(processes):
    """0, or the status of the first that fails, whereupon the others are ended."""
    left = list(processes)
    while left:
        for process in left:
            if process.poll() is None:
                continue
            left.remove(process)
            if process.returncode != 0:
                for other in left:
                    other.kill()
                return process.returncode if process.returncode > 0 else 1
            break
        else:
            time.sleep(0.02)
    return 0


def main():
    if sys.argv[1] == "--reach":
        reach(parse_hosts(sys.argv[2]), sys.argv[3], sys.argv[4:])
    job = parse(sys.argv[1:])
    if job.ranks == 0:
        become_rank(job)
    # Of another namespace, no port is known to be free; this one is as likely free as any.
    port = free_port("127.0.0.1")
    if job.hosts:
        write_secret()
    processes = []

    def end(*_):
        for process in processes:
            process.kill()
        sys.exit(1)

    signal.signal(signal.SIGTERM, end)
    processes += [start(job, rank, port) for rank in range(job.ranks)]
    return wait_for_all(processes)


if __name__ == "__main__":
    sys.exit(main())
