"""Who takes part in a comparison, and how the ranks of each are started.

A contender that this machine cannot build or start is named with the reason, never passed over.
Knows nothing of what is measured.
"""
import dataclasses
import os
import pathlib
import sys

import builds
from builds import Unavailable


@dataclasses.dataclass(frozen=True)
class Contender:
    """One column of the report: a program, how to start it, and where its buffers come from."""
    name: str
    # "tutti": what is judged; "peer": what it is judged by; "beside": reported beside the peers;
    # "before": an older Tutti; "ordered": a Tutti whose sums do not depend on how they are done;
    # "floor": no library, but what the machine can do
    role: str
    program: pathlib.Path
    launcher: tuple  # the command up to the program
    memory: str = "plain"  # of the harness: "plain" or "library"
    environment: tuple = ()  # (name, value)
    floor: str = ""  # of a Tutti: the floor of the same kind of buffers
    operations: tuple = ()  # only these; all without

    def work(self, operations):
        return [name for name in operations if not self.operations or name in self.operations]

    def command(self, arguments):
        return [*self.launcher, str(self.program), "--memory", self.memory, *arguments]


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all contenders have in common."""
    ranks: int
    build: pathlib.Path  # Tutti's build folder
    hosts: tuple = ()  # (network namespace, address) of each; without them all are on this one

    def pinned(self):
        return self.ranks <= usable_cpus()

    def network(self):
        return self.hosts[0][1].rsplit(".", 1)[0] + ".0/24"

    def spawner(self, *options):
        """The command up to the program that starts it once per rank."""
        hosts = ["--hosts", ",".join("=".join(host) for host in self.hosts)] if self.hosts else []
        return (sys.executable, str(builds.SOURCES / "spawn.py"), *options, *hosts, "--")

    def start_all(self, *options):
        return self.spawner(str(self.ranks), *(["--pin"] if self.pinned() else []), *options)


def usable_cpus():
    return len(os.sched_getaffinity(0))


# ---- Tutti and the floors ------------------------------------------------------------------------


def tuttis(suffix, role, build, setting):
    """By where their buffers come from."""
    program, harness = build
    if setting.hosts:
        return [Contender(f"tutti{suffix} tcp", role, harness, setting.start_all(),
                          environment=(("TUTTI_TRANSPORT", "tcp"),), floor="floor socket")]
    binding = "core" if setting.pinned() else "auto"
    launcher = (str(program), "run", "-n", str(setting.ranks), "--bind", binding, "--")
    return [Contender(f"tutti{suffix} plain", role, harness, launcher, "plain",
                      floor="floor staged"),
            Contender(f"tutti{suffix} shared heap", role, harness, launcher, "plain",
                      (("TUTTI_SHARE_HEAP", "1"),), floor="floor direct"),
            Contender(f"tutti{suffix} allocated", role, harness, launcher, "library",
                      floor="floor direct")]


ONECCL_OFI = "oneccl ofi"
ORDERED = " ordered"  # after the name of the Tutti that differs in nothing else
ORDERED_OPERATIONS = ("all_reduce", "reduce_scatter")


def ordered(made):
    """The same Tuttis with reduce_order=rank_tree."""
    order = ("TUTTI_REDUCE_ORDER", "rank_tree")
    return [dataclasses.replace(one, name=one.name + ORDERED, role="ordered", floor="",
                                environment=(*one.environment, order),
                                operations=ORDERED_OPERATIONS) for one in made]


def tutti_names(setting, revision=""):
    suffix = f"@{revision}" if revision else ""
    if setting.hosts:
        return [f"tutti{suffix} tcp"]
    kinds = ["plain", "shared heap", "allocated"]
    if not builds.mentions(revision, "TUTTI_SHARE_HEAP"):
        kinds.remove("shared heap")
    return [f"tutti{suffix} {kind}" for kind in kinds]


def floor(kind, setting):
    if setting.ranks % 2 or setting.ranks > 16:
        raise Unavailable("its two workers need an even number of ranks, at most 16")
    return [Contender(f"floor {kind}", "floor", builds.floor(setting.build, kind), (),
                      environment=(("WORLD_SIZE", str(setting.ranks)),))]


# ---- other libraries -----------------------------------------------------------------------------

# Debian's build takes UCX by itself only where it finds the network cards it knows.
UCX = ("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any",
       "--mca", "opal_common_ucx_devices", "any")


def open_mpi_over_tcp(setting):
    """Each host with a daemon of its own, as if they were two machines."""
    launcher, program = builds.mpi("openmpi")
    network = setting.network()
    spawn = [sys.executable, str(builds.SOURCES / "spawn.py")]
    hosts = ",".join("=".join(host) for host in setting.hosts)
    agent = " ".join([*spawn, "--reach", hosts])
    slots = ",".join(f"{address}:{-(-setting.ranks // 2)}" for _, address in setting.hosts)
    settings = {"plm_rsh_agent": f"'{agent}'", "btl": "tcp,self", "pml": "ob1",
                "btl_tcp_if_include": network, "oob_tcp_if_include": network}
    words = [f"--mca {name} {value}" for name, value in settings.items()]
    root = "--allow-run-as-root" if os.geteuid() == 0 else ""
    command = f"exec {launcher} {root} --host {slots} -n {setting.ranks} --map-by node " \
              f"--bind-to none {' '.join(words)} \"$@\""
    # The first host's launcher is itself reached as a host, so that it has that host's name.
    namespace = setting.hosts[0][0]
    return [Contender("openmpi", "peer", program, (
        "ip", "netns", "exec", namespace, "unshare", "--uts", "sh", "-c",
        f"hostname {namespace} && {command}", "sh", *spawn, "--here", "--pin", "--"))]


def mpich_over_tcp(setting):
    """Its ranks speak to their launcher through pipes, which reach into any namespace."""
    launcher, program = builds.mpi("mpich")
    environment = (("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "tcp,self"),
                   ("UCX_NET_DEVICES", ",".join(name for name, _ in setting.hosts)))
    return [Contender("mpich", "peer", program,
                      (launcher, "-n", str(setting.ranks), *setting.spawner("--here", "--pin")),
                      environment=environment)]


def floor_socket(setting):
    if setting.ranks != 2:
        raise Unavailable("a socket pair has two ends")
    return [Contender("floor socket", "floor", builds.floor(setting.build, "socket"),
                      setting.start_all())]


def open_mpi(name, setting, extra=()):
    launcher, program = builds.mpi("openmpi")
    command = [launcher, "-n", str(setting.ranks), *extra]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    command += ["--bind-to", "core"] if setting.pinned() else \
        ["--bind-to", "none", "--oversubscribe"]
    return [Contender(name, "peer", program, tuple(command))]


def mpich(setting):
    launcher, program = builds.mpi("mpich")
    binding = ["-bind-to", "core"] if setting.pinned() else []
    return [Contender("mpich", "peer", program, (launcher, *binding, "-n", str(setting.ranks)))]


def gloo(setting):
    """As batch work, or its threads keep each other from the core; docs/measuring.md says how."""
    return [Contender("gloo", "peer", builds.gloo(), setting.start_all("--batch"))]


# ---- beside them: reported, but no claim is judged by them ---------------------------------------


def intel_environment(setting):
    libraries = str(builds.INTEL / "lib")
    pin = (("I_MPI_PIN", "1"), ("I_MPI_PIN_DOMAIN", "core")) \
        if setting.pinned() and not setting.hosts else (("I_MPI_PIN", "0"),)
    # Its ranks have one launcher, so that its collectives would find memory that they share.
    fabric = (("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "tcp"),
              ("I_MPI_COLL_INTRANODE", "pt2pt")) if setting.hosts else (("I_MPI_FABRICS", "shm"),)
    return (("I_MPI_ROOT", str(builds.INTEL)), ("I_MPI_HYDRA_BOOTSTRAP", "fork"),
            ("LD_LIBRARY_PATH", libraries), ("FI_PROVIDER_PATH", libraries), *pin, *fabric)


def by_intel_launcher(launcher, setting):
    here = setting.spawner("--here", "--pin") if setting.hosts else ()
    return (launcher, "-n", str(setting.ranks), *here)


def intel_mpi(setting):
    launcher, program = builds.intel("intel-mpi", "mpi_peer.cc", "mpi", "mpi.h")
    return [Contender("intel mpi", "beside", program, by_intel_launcher(launcher, setting),
                      environment=intel_environment(setting))]


def oneccl(setting):
    """Over Intel MPI, which is its default; and over libfabric, if asked for.

    It works in the thread that calls. By default it has another one spin, which takes the core of
    the rank: 8 ms a call over libfabric, 16 over TCP, and no difference elsewhere.
    """
    launcher, program = builds.intel("oneccl", "oneccl_peer.cc", "ccl", "oneapi/ccl.hpp")
    common = (*intel_environment(setting), ("CCL_WORKER_OFFLOAD", "0"))
    if not setting.hosts:
        common += (("CCL_KVS_IFACE", "lo"),)
    fabric = (("FI_PROVIDER", "tcp"),) if setting.hosts else \
        (("FI_PROVIDER", "shm"), ("CCL_ATL_SHM", "1"))
    return [Contender("oneccl", "beside", program, by_intel_launcher(launcher, setting),
                      environment=(*common, ("CCL_ATL_TRANSPORT", "mpi"))),
            Contender(ONECCL_OFI, "beside", program, setting.start_all(),
                      environment=(*common, *fabric, ("CCL_ATL_TRANSPORT", "ofi")))]


def groups(setting, against):
    """[(the names that a build gives, how to make them)], in the order of the report."""
    others = groups_over_tcp(setting) if setting.hosts else groups_on_one_host(setting)
    before = [(tutti_names(setting, against),
               lambda: tuttis(f"@{against}", "before", builds.revision(against), setting))]
    names = tutti_names(setting)
    in_order = [] if setting.hosts else [name + ORDERED for name in names]

    def today():
        made = tuttis("", "tutti", builds.tutti(setting.build), setting)
        return [*made, *ordered(made)]

    return [([*names, *in_order], today), *(before if against else []), *others]


def groups_over_tcp(setting):
    return [(["openmpi"], lambda: open_mpi_over_tcp(setting)),
            (["mpich"], lambda: mpich_over_tcp(setting)),
            (["gloo"], lambda: gloo(setting)),
            *groups_beside(setting),
            (["floor socket"], lambda: floor_socket(setting))]


def groups_on_one_host(setting):
    return [(["openmpi"], lambda: open_mpi("openmpi", setting)),
            (["openmpi ucx"], lambda: open_mpi("openmpi ucx", setting, UCX)),
            (["mpich"], lambda: mpich(setting)),
            (["gloo"], lambda: gloo(setting)),
            *groups_beside(setting),
            (["floor direct"], lambda: floor("direct", setting)),
            (["floor staged"], lambda: floor("staged", setting))]


def groups_beside(setting):
    return [(["intel mpi"], lambda: intel_mpi(setting)),
            (["oneccl", ONECCL_OFI], lambda: oneccl(setting))]


def by_default(name, operations):
    """Whether it takes part unasked: a claim is about sums from buffers of two kinds."""
    if name == ONECCL_OFI:
        return False
    return not name.endswith(ORDERED) or ("shared heap" not in name and
                                          bool(set(operations) & set(ORDERED_OPERATIONS)))


def assemble(setting, against, only, operations=ORDERED_OPERATIONS):
    """(contenders, {name: why it cannot take part}), of those named in `only`, or if that is empty
    of all that have something to do.

    Raises KeyError with the names that are nobody's.
    """
    present, absent = [], {}
    offered = groups(setting, against)
    known = [name for names, _ in offered for name in names]
    wanted = only or [name for name in known if by_default(name, operations)]
    if set(wanted) - set(known):
        raise KeyError(", ".join(sorted(set(wanted) - set(known))), ", ".join(known))
    for names, make in offered:
        asked = [name for name in names if name in wanted]
        try:
            present += [made for made in (make() if asked else []) if made.name in asked]
        except Unavailable as reason:
            absent.update({name: str(reason) for name in asked})
    return present, absent
