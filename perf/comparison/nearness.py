"""Which measurements are of one machine. The cores of a virtual machine are moved about among those
of the real one: now they share a cache, now they do not, and a line that goes from one to the other
then takes three times as long or more. Every contender is slower then, each in its own measure, so
that a ratio between a launch here and one there says nothing.

Each measurement has the price of a line before and after it (stage.hpp). This decides by those
prices alone, never by the times, which measurements count: those with near cores or those with
far ones, whichever are more.
"""
import dataclasses
import statistics

# Times the least price of a run. Near cores differ by a fifth among themselves.
FAR = 1.7
NEAR_STATE, FAR_STATE = "near", "far"


def prices_of(row):
    """Those that are known."""
    return [price for price in row.get("line_ns", ()) if price > 0]


def all_rows(outcomes):
    """(work, row) of every launch."""
    for outcome in outcomes.values():
        for rows in outcome.launches:
            yield from (rows or {}).items()


def state_of(row, least):
    """None where cores moved meanwhile, or where nothing is known."""
    far = {price > FAR * least for price in prices_of(row)}
    if len(far) != 1:
        return None
    return FAR_STATE if far.pop() else NEAR_STATE


def rounds_in(outcomes, state, least):
    """In how many rounds everybody who ran was measured so; the work with the fewest counts."""
    ran = [outcome.launches for outcome in outcomes.values() if outcome.ran()]
    works = {work for work, _ in all_rows(outcomes)}

    def whole(launches, work):
        rows = [rows[work] for rows in launches if rows and work in rows]
        return bool(rows) and all(state_of(row, least) == state for row in rows)
    return min((sum(whole(launches, work) for launches in zip(*ran)) for work in works),
               default=0)


@dataclasses.dataclass
class Choice:
    """What counts of a run."""
    state: str  # "" where all do
    rounds: int  # of which all count
    left_out: int  # measurements
    measured: int
    prices: dict  # state: median price of a line, ns

    def json(self):
        return dataclasses.asdict(self)


def choose(outcomes):
    """With cores of one kind only, or unknown ones, all measurements count."""
    rows = [row for _, row in all_rows(outcomes)]
    known = [price for row in rows for price in prices_of(row)]
    everything = max((len(outcome.launches) for outcome in outcomes.values()), default=0)
    least = min(known, default=0)
    states = [state_of(row, least) for row in rows]
    if all(price <= FAR * least for price in known):
        return Choice("", everything, 0, len(rows), {})
    counted = {state: rounds_in(outcomes, state, least) for state in (NEAR_STATE, FAR_STATE)}
    state = max(counted, key=lambda name: (counted[name], states.count(name)))
    prices = {name: statistics.median(price for row, of in zip(rows, states) if of == name
                                      for price in prices_of(row))
              for name in (NEAR_STATE, FAR_STATE) if name in states}
    return Choice(state, counted[state], len(rows) - states.count(state), len(rows), prices)


def leave_out(outcomes, choice):
    """Outcomes with what counts only."""
    if not choice.state:
        return outcomes
    least = min(price for _, row in all_rows(outcomes) for price in prices_of(row))

    def counting(rows):
        return rows and {work: row for work, row in rows.items()
                         if state_of(row, least) == choice.state}
    return {name: dataclasses.replace(outcome, launches=list(map(counting, outcome.launches)))
            for name, outcome in outcomes.items()}
