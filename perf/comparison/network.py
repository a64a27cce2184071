"""Two hosts on one machine: network namespaces joined by a pair of virtual interfaces, so that the
bytes between ranks go through TCP whatever a library would rather use. Made for one run and removed
after it. Needs root and iproute2.
"""
import contextlib
import os
import shutil
import subprocess

from builds import Unavailable

PREFIX = "10.213.7"


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False,
                          timeout=20)
    if done.returncode != 0:
        raise Unavailable(f"ip {' '.join(arguments)}: {done.stderr.strip()[:200]}")


def name(place):
    """Of a namespace and of its interface, which may have 15 letters."""
    return f"tutti{os.getpid() % 10**7}{'ab'[place]}"


def remove():
    for place in (0, 1):
        with contextlib.suppress(Unavailable):
            ip("netns", "delete", name(place))


def make():
    """[(namespace, address)]."""
    hosts = [(name(place), f"{PREFIX}.{place + 1}") for place in (0, 1)]
    for namespace, _ in hosts:
        ip("netns", "add", namespace)
    ip("link", "add", name(0), "netns", name(0), "type", "veth", "peer", "name", name(1), "netns",
       name(1))
    for namespace, address in hosts:
        ip("-n", namespace, "address", "add", f"{address}/24", "dev", namespace)
        ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", namespace, "link", "set", namespace, "up")
    return tuple(hosts)


@contextlib.contextmanager
def two_hosts():
    """The hosts for as long as the context lasts. Raises Unavailable where they cannot be."""
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root")
    if not shutil.which("ip"):
        raise Unavailable("there is no `ip` (iproute2)")
    try:
        yield make()
    finally:
        remove()
