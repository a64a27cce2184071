"""Which measurements are of one machine. The cores of a virtual machine are moved about among those
of the real one: now they share a cache, now they do not, and a line that goes from one to the other
then takes three times as long or more. Every contender is slower then, each in its own measure, so
that a ratio between a launch here and one there says nothing.

Each measurement has the price of a line before and after it (stage.hpp). This decides by those
prices alone, never by the times, which measurements count: those with cores as near to each other
as in most of the rounds.
"""
import bisect
import dataclasses
import statistics

# Cores of one kind have prices within so many times of their typical one: on real machines they
# differ by a tenth among themselves, and threads of a core, cores of a cache and cores of different
# caches by two times and more.
SPREAD = 1.4
# Kinds with fewer of all prices are not spoken of.
WORTH_TELLING = 0.01


def prices_of(row):
    """Those that are known."""
    return [price for price in row.get("line_ns", ()) if price > 0]


def all_rows(outcomes):
    """(work, row) of every launch."""
    for outcome in outcomes.values():
        for rows in outcome.launches:
            yield from (rows or {}).items()


def is_of(price, kind):
    return kind <= price * SPREAD and price <= kind * SPREAD


def kinds_in(prices):
    """{typical price: how many are of it}, the most frequent one first. Every price is of one."""
    kinds = {}
    rest = sorted(prices)
    while rest:
        center = max(sorted(set(rest)), key=lambda price: neighbours(rest, price))
        near = [price for price in rest if is_of(price, center)]
        kinds[statistics.median(near)] = len(near)
        rest = [price for price in rest if not is_of(price, center)]
    return kinds


def neighbours(ordered, price):
    below = bisect.bisect_left(ordered, price / SPREAD)
    return bisect.bisect_right(ordered, price * SPREAD) - below


def counts(row, kind):
    """Not where cores moved meanwhile, or where nothing is known."""
    prices = prices_of(row)
    return bool(prices) and all(is_of(price, kind) for price in prices)


def rounds_in(outcomes, kind):
    """In how many rounds everybody who ran was measured so; the work with the fewest counts."""
    ran = [outcome.launches for outcome in outcomes.values() if outcome.ran()]
    works = {work for work, _ in all_rows(outcomes)}

    def whole(launches, work):
        rows = [rows[work] for rows in launches if rows and work in rows]
        return bool(rows) and all(counts(row, kind) for row in rows)
    return min((sum(whole(launches, work) for launches in zip(*ran)) for work in works),
               default=0)


@dataclasses.dataclass
class Choice:
    """What counts of a run."""
    kind: float  # the typical price of a line, ns; 0 where all measurements count
    rounds: int  # of which all count
    left_out: int  # measurements
    measured: int
    kinds: list  # typical prices that were met more than now and then

    def json(self):
        return dataclasses.asdict(self)


def choose(outcomes):
    """With cores of one kind only, or unknown ones, all measurements count."""
    rows = [row for _, row in all_rows(outcomes)]
    kinds = kinds_in([price for row in rows for price in prices_of(row)])
    everything = max((len(outcome.launches) for outcome in outcomes.values()), default=0)
    if len(kinds) < 2:
        return Choice(0, everything, 0, len(rows), list(kinds))
    rounds = {kind: rounds_in(outcomes, kind) for kind in kinds}
    kind = max(kinds, key=lambda one: (rounds[one], kinds[one]))
    told = sorted(one for one, prices in kinds.items()
                  if one == kind or prices >= WORTH_TELLING * sum(kinds.values()))
    left_out = sum(not counts(row, kind) for row in rows)
    return Choice(kind, rounds[kind], left_out, len(rows), told)


def leave_out(outcomes, choice):
    """Outcomes with what counts only."""
    if not choice.kind:
        return outcomes

    def counting(rows):
        return rows and {work: row for work, row in rows.items() if counts(row, choice.kind)}
    return {name: dataclasses.replace(outcome, launches=list(map(counting, outcome.launches)))
            for name, outcome in outcomes.items()}
