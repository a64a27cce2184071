"""From launches to medians, spreads and ratios.

The value of a launch is the median over its calls; that of a contender the median over launches;
the spread goes from the least launch to the greatest. A ratio is taken within each round, between
launches that ran next to each other, and then the median over rounds. Knows nothing of printing.
"""
import dataclasses
import statistics


@dataclasses.dataclass
class Spread:
    """A median with its extremes."""
    median: float
    low: float
    high: float

    def json(self):
        return {"median": round(self.median, 4), "min": round(self.low, 4),
                "max": round(self.high, 4)}


def spread(values):
    """None when there are no values."""
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def launch_values(outcome, size):
    """By round; None where the launch failed."""
    return [rows[size]["median_us"] if rows and size in rows else None
            for rows in outcome.launches]


def time_us(outcome, size):
    return spread([value for value in launch_values(outcome, size) if value is not None])


def ratio(over, under, size):
    """How many times longer `over` takes than `under`, round by round; None without rounds."""
    pairs = zip(launch_values(over, size), launch_values(under, size))
    return spread([a / b for a, b in pairs if a is not None and b])


def best(names, outcomes, size):
    """The name with the least median at this size, or None."""
    times = {name: time_us(outcomes[name], size) for name in names}
    ran = {name: value.median for name, value in times.items() if value}
    return min(ran, key=ran.get) if ran else None


@dataclasses.dataclass
class Row:
    """All that is known of one size."""
    size: int
    times: dict  # contender's name: Spread, of those that ran
    best_peer: str
    gains: dict  # name of a Tutti: Spread of the best peer's time over its time
    changes: dict  # name of a Tutti: Spread of the older Tutti's time over its time


def table(present, outcomes, sizes):
    named = {role: [c.name for c in present if c.role == role] for role in
             ("tutti", "peer", "before")}
    rows = []
    for size in sizes:
        times = {name: time_us(outcome, size) for name, outcome in outcomes.items()}
        best_peer = best(named["peer"], outcomes, size)
        gains, changes = {}, {}
        for name in named["tutti"]:
            if best_peer:
                gains[name] = ratio(outcomes[best_peer], outcomes[name], size)
            for before in named["before"]:
                if before.split()[-1] == name.split()[-1]:
                    changes[name] = ratio(outcomes[before], outcomes[name], size)
        rows.append(Row(size, {name: value for name, value in times.items() if value}, best_peer,
                        {name: value for name, value in gains.items() if value},
                        {name: value for name, value in changes.items() if value}))
    return rows


# (contender, from this size in bytes, the best peer's time over ours): what Tutti sets out to reach
# with two ranks.
AIMS = (("tutti plain", 0, 0.95), ("tutti allocated", 1 << 20, 2.0))


def judge(rows):
    """[(contender, from size, figure, sizes that reach it, sizes that do not)]."""
    verdicts = []
    for name, least, figure in AIMS:
        judged = [row for row in rows if row.size >= least and name in row.gains]
        reached = [row.size for row in judged if row.gains[name].median >= figure]
        if judged:
            verdicts.append((name, least, figure, reached,
                             [row.size for row in judged if row.size not in reached]))
    return verdicts
