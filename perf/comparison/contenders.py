"""Who takes part in a comparison, how each is built, and how its ranks are started.

A contender that this machine cannot build is named with the reason, never passed over. Knows
nothing of what is measured.
"""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN_BUILDS = ROOT / "build" / "compare"
SOURCES = ROOT / "perf" / "comparison"
SETUP = "perf/compare --setup installs it"


class Unavailable(Exception):
    """Why a contender cannot take part, for the reader of the report."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """One column of the report: a program, how to start it, and where its buffers come from."""
    name: str
    role: str  # "tutti": what is judged; "peer": what it is judged by; "before": an older Tutti
    program: pathlib.Path
    launcher: tuple  # the command up to the program, see started()
    memory: str = "plain"  # of the harness: "plain" or "library"

    def command(self, arguments):
        return [*self.launcher, str(self.program), "--memory", self.memory, *arguments]


def run_logged(command, log, cwd=ROOT):
    """Runs a build step; raises Unavailable with its last words when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as out:
        code = subprocess.run(command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT,
                              check=False).returncode
    if code == 0:
        return
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(?i)\berror\b\s*:?\s", line)] or lines[-1:]
    words = errors[0].replace(f"{ROOT}/", "") if errors else f"exit code {code}"
    raise Unavailable(f"does not build: {words[:200]} (log: {short_path(log)})")


def short_path(path):
    try:
        return str(pathlib.Path(path).relative_to(ROOT))
    except ValueError:
        return str(path)


def new_log(name):
    log = OWN_BUILDS / "logs" / f"{name}.log"
    log.unlink(missing_ok=True)
    return log


# ---- Tutti ---------------------------------------------------------------------------------------


def tutti_launcher(program, ranks):
    binding = "core" if ranks <= usable_cpus() else "auto"
    return (str(program), "run", "-n", str(ranks), "--bind", binding, "--")


def usable_cpus():
    return len(os.sched_getaffinity(0))


def tutti_pair(suffix, role, build, ranks):
    launcher = tutti_launcher(build[0], ranks)
    return [Contender(f"tutti{suffix} plain", role, build[1], launcher, "plain"),
            Contender(f"tutti{suffix} allocated", role, build[1], launcher, "library")]


def build_tutti(folder):
    """This checkout, in the given build folder: (`tutti`, the harness)."""
    log = new_log("tutti")
    if not (folder / "CMakeCache.txt").exists():
        preset = folder == ROOT / "build" / "release"
        run_logged(["cmake", "--preset", "release"] if preset else
                   ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(folder)], log)
    run_logged(["cmake", "--build", str(folder), "--target", "tutti_program", "compare_tutti"], log)
    return folder / "bin" / "tutti", folder / "bin" / "compare_tutti"


def build_revision(revision):
    """Another revision of Tutti under today's harness: (its `tutti`, the harness)."""
    folder = OWN_BUILDS / f"tutti-{revision}"
    source, build = folder / "source", folder / "build"
    log = new_log(f"tutti-{revision}")
    if not source.exists():
        partly = folder / "source.partly"  # what is here when this is interrupted
        partly.mkdir(parents=True, exist_ok=True)
        with subprocess.Popen(["git", "archive", revision], cwd=ROOT,
                              stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", str(partly)], stdin=archive.stdout, check=True)
        partly.rename(source)
    run_logged(["cmake", "-G", "Ninja", "-S", str(SOURCES), "-B", str(build),
                f"-DTUTTI_SOURCE={source}"], log)
    run_logged(["cmake", "--build", str(build), "--target", "tutti_program", "compare_tutti"], log)
    return build / "bin" / "tutti", build / "bin" / "compare_tutti"


def resolve_revision(name):
    """The commit that a name means, short. Raises Unavailable when there is none."""
    found = subprocess.run(["git", "rev-parse", "--verify", "--short=10", f"{name}^{{commit}}"],
                           cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise Unavailable(f"git knows no revision '{name}'")
    return found.stdout.strip()


def newest(paths):
    return max((os.path.getmtime(path) for path in paths if os.path.exists(path)), default=0.0)


# ---- MPI -----------------------------------------------------------------------------------------


def build_mpi(flavour):
    wrapper = shutil.which(f"mpicxx.{flavour}")
    launcher = shutil.which(f"mpirun.{flavour}")
    packages = {"openmpi": "openmpi-bin libopenmpi-dev", "mpich": "mpich libmpich-dev"}[flavour]
    if not wrapper or not launcher:
        raise Unavailable(f"not installed ({packages}); {SETUP}")
    program = OWN_BUILDS / f"compare_{flavour}"
    sources = [SOURCES / name for name in ("main.cc", "stage.cc", "mpi_peer.cc")]
    if newest([wrapper, *sources, *SOURCES.glob("*.hpp")]) > newest([program]):
        run_logged([wrapper, "-std=c++20", "-O3", f"-I{ROOT}", *map(str, sources), "-o",
                    str(program)], new_log(flavour))
    return launcher, program


def open_mpi(ranks, extra=()):
    launcher, program = build_mpi("openmpi")
    command = [launcher, "-n", str(ranks), *extra]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if ranks <= usable_cpus():
        command += ["--bind-to", "core"]
    else:
        command += ["--bind-to", "none", "--oversubscribe"]
    return program, tuple(command)


# Debian's build takes UCX by itself only where it finds the network cards it knows.
UCX = ("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any",
       "--mca", "opal_common_ucx_devices", "any")


def make_open_mpi(ranks):
    return [Contender("openmpi", "peer", *open_mpi(ranks))]


def make_open_mpi_ucx(ranks):
    return [Contender("openmpi ucx", "peer", *open_mpi(ranks, UCX))]


def make_mpich(ranks):
    launcher, program = build_mpi("mpich")
    binding = ["-bind-to", "core"] if ranks <= usable_cpus() else []
    return [Contender("mpich", "peer", program, (launcher, *binding, "-n", str(ranks)))]


def groups(ranks, build_folder, against):
    """[(the names that a build gives, how to make them)], in the order of the report."""
    def pair(suffix):
        return [f"tutti{suffix} plain", f"tutti{suffix} allocated"]

    before = [(pair(f"@{against}"),
               lambda: tutti_pair(f"@{against}", "before", build_revision(against), ranks))]
    return [(pair(""), lambda: tutti_pair("", "tutti", build_tutti(build_folder), ranks)),
            *(before if against else []),
            (["openmpi"], lambda: make_open_mpi(ranks)),
            (["openmpi ucx"], lambda: make_open_mpi_ucx(ranks)),
            (["mpich"], lambda: make_mpich(ranks))]


def assemble(ranks, build_folder, against, only):
    """(contenders, {name: why it cannot take part}), of those named in `only`, or all if empty.

    Raises KeyError with the names that are nobody's.
    """
    present, absent = [], {}
    offered = groups(ranks, build_folder, against)
    known = [name for names, _ in offered for name in names]
    wanted = only or known
    if set(wanted) - set(known):
        raise KeyError(", ".join(sorted(set(wanted) - set(known))), ", ".join(known))
    for names, make in offered:
        asked = [name for name in names if name in wanted]
        try:
            present += [made for made in (make() if asked else []) if made.name in asked]
        except Unavailable as reason:
            absent.update({name: str(reason) for name in asked})
    return present, absent
