"""Says what a comparison found: as a table for the terminal, as Markdown, and as JSON. Knows
nothing of how the figures came about."""
import statistics

# By whether there are more ranks than cores.
MEANING = {
    False: "Microseconds of a call: the median over launches of the median over calls of the\n"
           "slowest rank's time",
    True: "Microseconds that a call adds to a loop of its owner's writing and reading, between\n"
          "more ranks than cores: the median over launches of the median over batches"}


def size_name(size, short=False):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name[0]}" if short else f"{size // unit} {name}"
    return f"{size}" if short else f"{size} B"


def number(value):
    """Three significant digits."""
    for below, digits in ((10, 2), (100, 1)):
        if value < below:
            return f"{value:.{digits}f}"
    return f"{value:.0f}"


def with_spread(value):
    if value is None:
        return "-"
    return f"{number(value.median)} ({number(value.low)}..{number(value.high)})"


def floors_of(present):
    """{name of a Tutti: its floor}, where both take part."""
    there = {contender.name for contender in present if contender.role == "floor"}
    return {contender.name: contender.floor for contender in present
            if contender.role == "tutti" and contender.floor in there}


def floor_cell(row, name, floor):
    reached = row.reached.get(name, {}).get(floor)
    return f"{reached.median:.2f}" if reached else "-"


def time_cell(row, name):
    way = row.ways.get(name)
    return with_spread(row.times.get(name)) + (f" {way}" if way else "")


def cells(rows, present):
    """Header and lines, as text."""
    names = [contender.name for contender in present]
    judged = [contender.name for contender in present if contender.role == "tutti"]
    compared, ordered, rated = ([name for name in judged if any(name in of(row) for row in rows)]
                                for of in (lambda row: row.changes, lambda row: row.order,
                                           lambda row: row.rate))
    floors = floors_of(present)
    header = ["size", *names, "best peer", *(f"best peer / {name}" for name in judged),
              *(f"{floor} / {name}" for name, floor in floors.items()),
              *(f"before / {name}" for name in compared),
              *(f"{name} / in rank order" for name in ordered),
              *(f"f32 / {name}" for name in rated)]
    lines = [[size_name(row.size), *(time_cell(row, name) for name in names),
              row.best_peer or "-", *(with_spread(row.gains.get(name)) for name in judged),
              *(floor_cell(row, name, floor) for name, floor in floors.items()),
              *(with_spread(row.changes.get(name)) for name in compared),
              *(with_spread(row.order.get(name)) for name in ordered),
              *(with_spread(row.rate.get(name)) for name in rated)] for row in rows]
    return header, lines


def as_text(header, lines):
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in [header, *lines])


def as_markdown(header, lines):
    return "\n".join("| " + " | ".join(line) + " |"
                     for line in [header, ["---:"] * len(header), *lines])


def said_of(claim, operation, name, type_name):
    where = f"from {size_name(claim.least)}" if claim.least else "at every size"
    if claim.below < 1 << 62:
        where = f"below {size_name(claim.below)}" if not claim.least else \
            f"{where} to below {size_name(claim.below)}"
    what = {"peer": f"{claim.figure:g} of the best peer's speed",
            "floor": f"{claim.figure:g} of its floor",
            "either": f"{claim.figure:g} of the best peer's speed or {claim.of_floor:g} of the "
                      "fastest floor",
            "order": f"{claim.figure:g} of the speed in any order when in rank order",
            "rate": f"{claim.figure:g} of the bytes a second of f32"}[claim.measure]
    of_type = "" if type_name == "f32" else f" of {type_name}"
    return f"claim {claim.number}: {operation}{of_type}, {name}, {where}, at least {what}"


def verdict_lines(verdicts, needed_rounds):
    for verdict in verdicts:
        missed = verdict.missed()
        said = "holds" if not missed else "missed at " + ", ".join(
            f"{size_name(finding.size)} ({finding.value:.2f}, needs {finding.needed:.2f})"
            for finding in missed)
        held = len(verdict.findings) - len(missed)
        doubt = "" if verdict.rounds >= needed_rounds else \
            f"; not proved, {verdict.rounds} of {needed_rounds} rounds"
        about = said_of(verdict.claim, verdict.operation, verdict.contender, verdict.type)
        yield (f"{about}: {said}"
               f" ({held} of {len(verdict.findings)} sizes{doubt})")


def absence_lines(absent, outcomes):
    for name, reason in absent.items():
        yield f"{name} did not take part: {reason}"
    for name, outcome in outcomes.items():
        if not outcome.ran() and outcome.failures:
            yield f"{name} did not run: {outcome.failures[0]}"
        elif outcome.failures:
            yield (f"{name}: {len(outcome.failures)} of {len(outcome.launches)} launches failed: "
                   f"{outcome.failures[0]}")
        for (operation, type_name), reason in outcome.unable.items():
            yield f"{name} did not do {operation} of {type_name}: {reason}"


def beside_lines(present):
    """Claims are judged by the peers alone."""
    beside, peers = ([contender.name for contender in present if contender.role == role]
                     for role in ("beside", "peer"))
    if beside:
        yield (f"{', '.join(beside)}: reported beside the peers; the best peer is the best of "
               f"{', '.join(peers)}")


def pinning_lines(outcomes, ranks, usable_cpus):
    """Contenders whose ranks could get in each other's way although there are cores for all."""
    for name, outcome in outcomes.items():
        cpus = [cpu for rank in outcome.cpus for cpu in rank]
        if outcome.ran() and ranks <= usable_cpus and len(cpus) != len(set(cpus)):
            yield f"{name}: ranks were not pinned apart: {outcome.cpus}"


def cores_lines(choice):
    """Which measurements count where cores were moved about."""
    if choice.kind:
        prices = [f"{price:.0f}" for price in choice.kinds]
        found = " and ".join([", ".join(prices[:-1]), prices[-1]]) if prices[1:] else prices[0]
        yield (f"the hypervisor moved the cores: a line took about {found} ns to the other core "
               f"and back; what was measured at {choice.kind:.0f} ns counts, {choice.left_out} of "
               f"{choice.measured} measurements are left out")


LAUNCH_COLUMNS = ("median_us", "p10_us", "p90_us", "calls", "batch", "quiet", "line_ns", "way")


def json_launches(outcomes):
    """Every launch, so that other statistics can be drawn from it later: by contender and work a
    line of LAUNCH_COLUMNS for each round, None where it gave nothing."""
    def text(value):
        return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    def line(row):
        return row and " ".join(text(row.get(name, "")) for name in LAUNCH_COLUMNS).rstrip()

    def by_work(launches):
        works = dict.fromkeys(work for rows in launches if rows for work in rows)
        return {" ".join(map(str, work)): [line((rows or {}).get(work)) for rows in launches]
                for work in works}
    return {name: by_work(outcome.launches) for name, outcome in outcomes.items()}


def quiet_lines(quiet, crowded):
    """What else ran counts for much where ranks hand the cores over to each other."""
    if quiet.disturbed() > 0.1:
        what = "the times of all contenders are mostly that price" if crowded else \
            "a contender that yields is given the processor back that much later"
        yield (f"before {100 * quiet.disturbed():.0f} % of the launches something else ran (a "
               f"yield took {statistics.median(quiet.prices):.1f} us, at most "
               f"{max(quiet.prices):.1f}; where nothing runs, 0.5): {what}")


def markdown(result, sections, notes, chart_name):
    """sections: [(title, header, lines)]."""
    machine = "\n".join(f"- {name.replace('_', ' ')}: {value}"
                        for name, value in result["machine"].items())
    libraries = "\n".join(f"- {name}: {told['library']}, {told['launches']} launches"
                          for name, told in result["contenders"].items())
    tables = "\n\n".join(f"## {title}\n\n{as_markdown(header, lines)}"
                         for title, header, lines in sections)
    return f"""# {result['title']}

{result['date']}, Tutti {result['revision']}: `{result['command']}`

{MEANING[result['crowded']]}; in brackets the least and
the greatest launch. Every owner rewrites its input before a call and reads its output after it. A
ratio above 1 means that Tutti is faster; it is the median over
rounds of the ratio within a round. Of a floor, 1 would be all that the machine can do.

{tables}

![times and relative speeds]({chart_name})

## Notes

{chr(10).join('- ' + note for note in notes)}

## Contenders

{libraries}

## Machine

{machine}
"""


def json_ratios(ratios):
    return {name: value.json() for name, value in ratios.items()}


def json_row(row):
    return {"bytes": row.size, "best_peer": row.best_peer, "time_us": json_ratios(row.times),
            "best_peer_over": json_ratios(row.gains), "before_over": json_ratios(row.changes),
            "any_order_over_rank_order": json_ratios(row.order),
            "f32_over": json_ratios(row.rate), "ways": row.ways,
            "best_peer_over_floor": json_ratios(row.room),
            "floor_over": {name: json_ratios(of) for name, of in row.reached.items()}}


def json_table(table):
    return {"operation": table.operation, "type": table.type,
            "sizes": [json_row(row) for row in table.rows]}


def json_verdict(verdict):
    claim = verdict.claim
    return {"claim": claim.number, "contender": verdict.contender,
            "operation": verdict.operation, "type": verdict.type, "rounds": verdict.rounds,
            "said": said_of(claim, verdict.operation, verdict.contender, verdict.type),
            "sizes": [{"bytes": finding.size, "value": round(finding.value, 4),
                       "needed": round(finding.needed, 4), "holds": finding.holds}
                      for finding in verdict.findings]}
