"""Builds the programs of a comparison: the harness on top of Tutti, of older Tuttis, of each
library, and of the floors. What this machine cannot build is named with the reason. Knows nothing
of how programs are started or what is measured.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN_BUILDS = ROOT / "build" / "compare"
SOURCES = ROOT / "perf" / "comparison"
HARNESS = ("main.cc", "options.cc", "stage.cc", "telling.cc")
SETUP = "perf/compare --setup installs it"
INTEL = OWN_BUILDS / "intel"  # a virtual environment of Python, for what PyPI has
# Not the newest: from 2021.19 on Intel MPI asks for a package `libfabric` that PyPI lacks, and from
# 2021.17 on oneCCL's libraries for a libccl.so.2 that their package lacks.
INTEL_PACKAGES = ("impi-devel==2021.18.1", "oneccl-cpu==2021.16.2", "oneccl-cpu-devel==2021.16.2")


class Unavailable(Exception):
    """Why a contender cannot take part, for the reader of the report."""


def short_path(path):
    try:
        return str(pathlib.Path(path).relative_to(ROOT))
    except ValueError:
        return str(path)


# The owner's loops are in the same place of their cache lines in every contender's program. Where
# the compiler happens to put them is worth a tenth of a call of 64 KiB, one way or the other.
LOOPS_ALIKE = ("-falign-functions=64", "-falign-loops=64")


def new_log(name):
    log = OWN_BUILDS / "logs" / f"{name}.log"
    log.unlink(missing_ok=True)
    return log


def run_logged(command, log, cwd=ROOT, else_said="does not build"):
    """Runs a step of a build; raises Unavailable with its last words when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as out:
        code = subprocess.run(command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT,
                              check=False).returncode
    if code == 0:
        return
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(?i)\berror\b\s*:?\s", line)] or lines[-1:]
    words = errors[0].replace(f"{ROOT}/", "") if errors else f"exit code {code}"
    raise Unavailable(f"{else_said}: {words[:200]} (log: {short_path(log)})")


# ---- Tutti ---------------------------------------------------------------------------------------


def configure(folder, log):
    if (folder / "CMakeCache.txt").exists():
        return
    preset = folder == ROOT / "build" / "release"
    run_logged(["cmake", "--preset", "release"] if preset else
               ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(folder)], log)


def tutti(folder):
    """This checkout, in the given build folder: (`tutti`, the harness)."""
    log = new_log("tutti")
    configure(folder, log)
    run_logged(["cmake", "--build", str(folder), "--target", "tutti_program", "compare_tutti"], log)
    return folder / "bin" / "tutti", folder / "bin" / "compare_tutti"


def floor(folder, kind):
    log = new_log(f"floor-{kind}")
    configure(folder, log)
    run_logged(["cmake", "--build", str(folder), "--target", f"floor_{kind}"], log)
    return folder / "bin" / f"floor_{kind}"


def revision(name):
    """Another revision of Tutti under today's harness: (its `tutti`, the harness)."""
    folder = OWN_BUILDS / f"tutti-{name}"
    source, build = folder / "source", folder / "build"
    log = new_log(f"tutti-{name}")
    if not source.exists():
        partly = folder / "source.partly"  # what is here when this is interrupted
        partly.mkdir(parents=True, exist_ok=True)
        with subprocess.Popen(["git", "archive", name], cwd=ROOT,
                              stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", str(partly)], stdin=archive.stdout, check=True)
        partly.rename(source)
    run_logged(["cmake", "-G", "Ninja", "-S", str(SOURCES), "-B", str(build),
                f"-DTUTTI_SOURCE={source}"], log)
    run_logged(["cmake", "--build", str(build), "--target", "tutti_program", "compare_tutti"], log)
    return build / "bin" / "tutti", build / "bin" / "compare_tutti"


def mentions(name, setting):
    """Whether that revision, or this checkout without a name, has such a setting."""
    where = [name] if name else []
    found = subprocess.run(["git", "grep", "-q", setting, *where, "--", "src/base/config.cc"],
                           cwd=ROOT, capture_output=True, check=False)
    return found.returncode == 0


def resolve_revision(name):
    """The commit that a name means, short. Raises Unavailable when there is none."""
    found = subprocess.run(["git", "rev-parse", "--verify", "--short=10", f"{name}^{{commit}}"],
                           cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise Unavailable(f"git knows no revision '{name}'")
    return found.stdout.strip()


# ---- other libraries -----------------------------------------------------------------------------


def newest(paths):
    return max((os.path.getmtime(path) for path in paths if os.path.exists(path)), default=0.0)


def harness_with(name, peer, compiler, flags=()):
    """The harness and one peer, by a compiler or its wrapper, when older than its sources."""
    program = OWN_BUILDS / f"compare_{name}"
    sources = [SOURCES / source for source in (*HARNESS, peer)]
    if newest([compiler, *sources, *SOURCES.glob("*.hpp")]) > newest([program]):
        run_logged([compiler, "-std=c++20", "-O3", *LOOPS_ALIKE, f"-I{ROOT}", *map(str, sources),
                    *flags, "-o", str(program)], new_log(name))
    return program


def mpi(flavour):
    """One of Debian's MPI libraries: (its launcher, the harness)."""
    wrapper = shutil.which(f"mpicxx.{flavour}")
    launcher = shutil.which(f"mpirun.{flavour}")
    packages = {"openmpi": "openmpi-bin libopenmpi-dev", "mpich": "mpich libmpich-dev"}[flavour]
    if not wrapper or not launcher:
        raise Unavailable(f"not installed ({packages}); {SETUP}")
    return launcher, harness_with(flavour, "mpi_peer.cc", wrapper)


def gloo():
    if not pathlib.Path("/usr/include/gloo/config.h").exists():
        raise Unavailable(f"not installed (libgloo-dev); {SETUP}")
    compiler = shutil.which("g++")
    if not compiler:
        raise Unavailable("there is no g++")
    return harness_with("gloo", "gloo_peer.cc", compiler, ("-lgloo", "-lpthread"))


def install_intel():
    """Raises Unavailable where this machine cannot have them."""
    log = new_log("setup-intel")
    for command in ([sys.executable, "-m", "venv", str(INTEL)],
                    [str(INTEL / "bin" / "python"), "-m", "pip", "install", *INTEL_PACKAGES]):
        run_logged(command, log, else_said="cannot be installed")


def intel(name, peer, library, header):
    """One of Intel's libraries: (the launcher of its MPI, the harness)."""
    launcher = INTEL / "bin" / "mpiexec.hydra"
    if not launcher.exists() or not (INTEL / "include" / header).exists():
        raise Unavailable(f"not installed ({' '.join(INTEL_PACKAGES)} from PyPI); {SETUP}")
    compiler = shutil.which("g++")
    if not compiler:
        raise Unavailable("there is no g++")
    libraries = INTEL / "lib"
    return str(launcher), harness_with(name, peer, compiler, (
        "-isystem", str(INTEL / "include"), f"-L{libraries}", f"-Wl,-rpath,{libraries}",
        f"-l{library}", "-lpthread"))
