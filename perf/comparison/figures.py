"""From launches to medians, spreads and ratios.

The value of a launch is the median over its calls; that of a contender the median over launches;
the spread goes from the least launch to the greatest. A ratio is taken within each round, between
launches that ran next to each other, and then the median over rounds. Knows nothing of printing.

A piece of work is (operation, type, bytes).
"""
import collections
import dataclasses
import statistics


@dataclasses.dataclass
class Spread:
    """A median with its extremes."""
    median: float
    low: float
    high: float
    rounds: int = dataclasses.field(default=0, compare=False)  # that it is of

    def json(self):
        return {"median": round(self.median, 4), "min": round(self.low, 4),
                "max": round(self.high, 4)}


def spread(values):
    """None when there are no values."""
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values), len(values))


def launch_values(outcome, work):
    """By round; None where the launch failed."""
    return [rows[work]["median_us"] if rows and work in rows else None
            for rows in outcome.launches]


def time_us(outcome, work):
    return spread([value for value in launch_values(outcome, work) if value is not None])


def ratio(over, under, work, other_work=None):
    """How many times longer `over` takes than `under`, round by round; None without rounds. With
    `other_work`, that is what `over` does."""
    pairs = zip(launch_values(over, other_work or work), launch_values(under, work))
    return spread([a / b for a, b in pairs if a is not None and b])


def best(names, outcomes, work):
    """The name with the least median at this work, or None."""
    times = {name: time_us(outcomes[name], work) for name in names}
    ran = {name: value.median for name, value in times.items() if value}
    return min(ran, key=ran.get) if ran else None


def way(outcome, work):
    """The way that most launches of a floor found best."""
    ways = collections.Counter(rows[work].get("way", "") for rows in outcome.launches
                               if rows and work in rows)
    return ways.most_common(1)[0][0] if ways else ""


@dataclasses.dataclass
class Row:
    """All that is known of one size."""
    size: int
    times: dict  # contender's name: Spread, of those that ran
    best_peer: str
    gains: dict  # name of a Tutti: Spread of the best peer's time over its time
    changes: dict  # name of a Tutti: Spread of the older Tutti's time over its time
    ways: dict = dataclasses.field(default_factory=dict)  # name of a floor: how it was reached
    # Name of a Tutti: {name of a floor: Spread of the floor's time over its time}.
    reached: dict = dataclasses.field(default_factory=dict)
    # Name of a floor: Spread of the best peer's time over its time: what there is to gain.
    room: dict = dataclasses.field(default_factory=dict)
    # Name of a Tutti: Spread of its time over that of the same one with sums in rank order.
    order: dict = dataclasses.field(default_factory=dict)
    # Name of a Tutti: Spread of its time with f32 over that with this type, of as many bytes.
    rate: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Table:
    """All sizes of one operation on one type."""
    operation: str
    type: str
    rows: list

    def title(self):
        return f"{self.operation}, {self.type}"


def present_only(ratios):
    return {name: value for name, value in ratios.items() if value}


def row(named, outcomes, work):
    times = {name: time_us(outcome, work) for name, outcome in outcomes.items()}
    best_peer = best(named["peer"], outcomes, work)
    result = Row(work[2], present_only(times), best_peer, {}, {})
    floors = [name for name in named["floor"] if name in result.times]
    result.ways = {name: way(outcomes[name], work) for name in floors}
    for name in named["tutti"]:
        ours = outcomes[name]
        if best_peer:
            result.gains[name] = ratio(outcomes[best_peer], ours, work)
        result.reached[name] = present_only(
            {floor: ratio(outcomes[floor], ours, work) for floor in floors})
        for other in named["ordered"]:
            if other.rsplit(" ", 1)[0] == name:
                result.order[name] = ratio(ours, outcomes[other], work)
        if work[1] != "f32":
            result.rate[name] = ratio(ours, ours, work, (work[0], "f32", work[2]))
        for before in named["before"]:
            if before.split(" ", 1)[-1] == name.split(" ", 1)[-1]:
                result.changes[name] = ratio(outcomes[before], ours, work)
    if best_peer:
        result.room = present_only(
            {floor: ratio(outcomes[best_peer], outcomes[floor], work) for floor in floors})
    for ratios in ("gains", "changes", "order", "rate"):
        setattr(result, ratios, present_only(getattr(result, ratios)))
    return result


def table(present, outcomes, kind, sizes):
    """`kind` is (operation, type)."""
    named = {role: [c.name for c in present if c.role == role] for role in
             ("tutti", "peer", "before", "ordered", "floor")}
    return Table(*kind, [row(named, outcomes, (*kind, size)) for size in sizes])
