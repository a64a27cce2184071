"""Says what a comparison found: as a table for the terminal, as Markdown, and as JSON. Knows
nothing of how the figures came about."""


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


def cells(rows, present):
    """Header and lines, as text."""
    names = [contender.name for contender in present]
    judged = [contender.name for contender in present if contender.role == "tutti"]
    compared = [name for name in judged if any(name in row.changes for row in rows)]
    header = ["size", *names, "best peer", *(f"best peer / {name}" for name in judged),
              *(f"before / {name}" for name in compared)]
    lines = [[size_name(row.size), *(with_spread(row.times.get(name)) for name in names),
              row.best_peer or "-", *(with_spread(row.gains.get(name)) for name in judged),
              *(with_spread(row.changes.get(name)) for name in compared)] for row in rows]
    return header, lines


def as_text(header, lines):
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in [header, *lines])


def as_markdown(header, lines):
    return "\n".join("| " + " | ".join(line) + " |"
                     for line in [header, ["---:"] * len(header), *lines])


def verdict_lines(verdicts):
    for name, least, figure, reached, missed in verdicts:
        where = f"from {size_name(least)} up" if least else "at every size"
        said = "reached" if not missed else \
            "missed at " + ", ".join(size_name(size) for size in missed)
        yield (f"aim: {name} at least {figure:g} of the best peer's speed {where}: {said}"
               f" ({len(reached)} of {len(reached) + len(missed)} sizes)")


def absence_lines(absent, outcomes):
    for name, reason in absent.items():
        yield f"{name} did not take part: {reason}"
    for name, outcome in outcomes.items():
        if not outcome.ran() and outcome.failures:
            yield f"{name} did not run: {outcome.failures[0]}"
        elif outcome.failures:
            yield (f"{name}: {len(outcome.failures)} of {len(outcome.launches)} launches failed: "
                   f"{outcome.failures[0]}")


def pinning_lines(outcomes, ranks, usable_cpus):
    """Contenders whose ranks could get in each other's way although there are cores for all."""
    for name, outcome in outcomes.items():
        cpus = [cpu for rank in outcome.cpus for cpu in rank]
        if outcome.ran() and ranks <= usable_cpus and len(cpus) != len(set(cpus)):
            yield f"{name}: ranks were not pinned apart: {outcome.cpus}"


def markdown(result, header, lines, notes, chart_name):
    machine = "\n".join(f"- {name.replace('_', ' ')}: {value}"
                        for name, value in result["machine"].items())
    libraries = "\n".join(f"- {name}: {told['library']}, {told['launches']} launches"
                          for name, told in result["contenders"].items())
    return f"""# {result['title']}

{result['date']}, Tutti {result['revision']}: `{result['command']}`

Microseconds of a call: the median over launches of the median over calls of the slowest rank's
time; in brackets the least and the greatest launch. Every owner rewrites its input before a call
and reads its output after it. A ratio above 1 means that Tutti is faster; it is the median over
rounds of the ratio within a round.

{as_markdown(header, lines)}

![times and relative speeds]({chart_name})

{chr(10).join('- ' + note for note in notes)}

## Contenders

{libraries}

## Machine

{machine}
"""


def json_rows(rows):
    return [{"bytes": row.size, "best_peer": row.best_peer,
             "time_us": {name: value.json() for name, value in row.times.items()},
             "best_peer_over": {name: value.json() for name, value in row.gains.items()},
             "before_over": {name: value.json() for name, value in row.changes.items()}}
            for row in rows]
