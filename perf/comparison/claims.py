"""What Tutti sets out to reach, and whether a run reached it. Knows nothing of printing.

A figure that the machine has no room for is not asked for: against a peer, a claim holds where the
ratio is at least the figure, or 0.85 of what the floor of the same run would reach against that
peer, whichever is less. "No slower" is a ratio of at least 0.95.
"""
import dataclasses

from figures import present_only

KIB, MIB = 1 << 10, 1 << 20
NO_SLOWER = 0.95
OF_ROOM = 0.85
ROUNDS = 5  # that a claim needs
SUMS = ("all_reduce", "reduce_scatter")
MOVING = ("all_gather", "all_to_all")
ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
DIRECT = ("tutti allocated", "tutti shared heap")  # whose buffers the other ranks reach
PLAIN = ("tutti plain",)


@dataclasses.dataclass(frozen=True)
class Claim:
    number: int
    operations: tuple
    contenders: tuple
    figure: float
    # "peer": against the best one; "floor": of their own floor; "either" of these; "order": speed
    # of sums in rank order against any order; "rate": bytes a second against those of f32
    measure: str = "peer"
    least: int = 0
    below: int = 1 << 62
    ranks: tuple = (2,)
    tcp: bool = False
    types: tuple = ("f32",)
    of_floor: float = 0.0  # "either" holds where that much of the fastest floor is reached

    def of(self, size):
        return self.least <= size < self.below


CLAIMS = (
    Claim(1, ("all_reduce",), DIRECT, 1.25, least=64 * KIB, below=MIB),
    Claim(1, ("all_reduce",), DIRECT, 2.5, least=MIB, below=256 * MIB),
    Claim(1, ("all_reduce",), DIRECT, 4.0, least=256 * MIB),
    Claim(1, ("reduce_scatter",), DIRECT, 2.0, least=MIB),
    Claim(1, ("broadcast",), DIRECT, 1.5, least=64 * KIB),
    Claim(1, MOVING, DIRECT, NO_SLOWER),
    Claim(1, MOVING, DIRECT, 0.85, "floor", least=64 * KIB),
    Claim(2, ALL, PLAIN, NO_SLOWER),
    Claim(2, SUMS, PLAIN, 1.3, least=MIB),
    Claim(3, ("all_reduce", "all_gather", "broadcast"), PLAIN + DIRECT, 1.15, "either",
          below=KIB + 1, of_floor=1 / 1.25),
    Claim(4, ("all_reduce",), PLAIN + DIRECT, 2.0, ranks=(4, 8)),
    Claim(5, ALL, DIRECT, 0.8, "floor", least=64 * KIB),
    Claim(5, ALL, PLAIN, 0.8, "floor", least=MIB),
    Claim(6, ALL, ("tutti tcp",), NO_SLOWER, tcp=True),
    Claim(6, ALL, ("tutti tcp",), 0.85, "floor", least=MIB, tcp=True),
    Claim(7, SUMS, PLAIN + DIRECT, 1 / 1.25, "order", least=64 * KIB, ranks=(2, 4, 8)),
    Claim(7, SUMS, PLAIN + DIRECT, 0.8, "rate", ranks=(2, 4, 8), types=("bf16", "f16")),
)


@dataclasses.dataclass
class Finding:
    """One size of one operation of a claim."""
    size: int
    value: float  # what was measured
    needed: float
    holds: bool
    rounds: int  # of which the value is the median: those in which both sides ran


@dataclasses.dataclass
class Verdict:
    claim: Claim
    contender: str
    operation: str
    type: str
    findings: list
    rounds: int  # in the size with the least of them

    def missed(self):
        return [finding for finding in self.findings if not finding.holds]


def held_against(row, value, needed):
    return Finding(row.size, value.median, needed, value.median >= needed, value.rounds)


def needed_of_peer(figure, row, floor):
    room = row.room.get(floor)
    return min(figure, OF_ROOM * room.median) if room else figure


def against_peer(claim, row, name, floor):
    gain = row.gains.get(name)
    if gain is None:
        return None
    needed = needed_of_peer(claim.figure, row, floor)
    return held_against(row, gain, needed)


def against_floor(figure, row, name, floor):
    reached = row.reached.get(name, {}).get(floor)
    if reached is None:
        return None
    return held_against(row, reached, figure)


def fastest_floor(row):
    times = present_only({floor: row.times.get(floor) for floor in row.ways})
    return min(times, key=lambda floor: times[floor].median) if times else None


def find(claim, row, name, floor):
    """A Finding; None where the run does not tell."""
    if claim.measure in ("order", "rate"):
        value = getattr(row, claim.measure).get(name)
        return value and held_against(row, value, claim.figure)
    if claim.measure == "floor":
        return against_floor(claim.figure, row, name, floor)
    found = against_peer(claim, row, name, floor)
    if claim.measure == "either" and (found is None or not found.holds):
        other = against_floor(claim.of_floor, row, name, fastest_floor(row))
        return other if other and (found is None or other.holds) else found
    return found


def judge(tables, floors, ranks, tcp=False):
    """[Verdict] on the claims that are about such a run. `floors` names each Tutti's own floor."""
    verdicts = []
    for claim in CLAIMS:
        if ranks not in claim.ranks or tcp != claim.tcp:
            continue
        for name in claim.contenders:
            for table in tables:
                if table.type not in claim.types or table.operation not in claim.operations:
                    continue
                rows = [row for row in table.rows if claim.of(row.size)]
                findings = [find(claim, row, name, floors.get(name, "")) for row in rows]
                findings = [finding for finding in findings if finding]
                if findings:
                    verdicts.append(Verdict(claim, name, table.operation, table.type, findings,
                                            min(finding.rounds for finding in findings)))
    return verdicts
