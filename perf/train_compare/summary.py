"""From launches to medians, spreads and a ratio, and how they are told.

A launch's value is the median over its steps; a side's the median over launches, its spread the
least and the greatest launch. Beside it stands the fastest step of each launch: on a machine that
is busy, the nearest there is to what a step takes by itself. A ratio is taken within a round,
between launches that ran next to each other, and then the median over rounds. Knows nothing of how
the figures came about.
"""
import statistics

NEAR = 0.1  # by how much of the loss the two sides may differ at the end, and both be believed
TAIL = 5    # steps whose losses are averaged: single batches differ


def spread(values):
    return {"median": round(statistics.median(values), 5), "min": round(min(values), 5),
            "max": round(max(values), 5)}


def end_loss(outcome):
    return statistics.mean(outcome.losses[-TAIL:])


def side(outcomes, tokens):
    """One contender's figures for a type; only failures where no launch ended."""
    good = [outcome for outcome in outcomes if not outcome.failure]
    made = {"launches": len(outcomes),
            "failures": [outcome.failure for outcome in outcomes if outcome.failure]}
    if not good:
        return made
    steps = [outcome.step_s() for outcome in good]
    made["step_ms"] = spread([1e3 * step for step in steps])
    made["fastest_step_ms"] = spread([1e3 * outcome.fastest_s() for outcome in good])
    made["tokens_per_second"] = spread([tokens / step for step in steps])
    made["loss_at_the_end"] = spread([end_loss(outcome) for outcome in good])
    if good[0].parameters:
        made["parameters"] = good[0].parameters
    return made


def figures(by_name, options):
    """{contender: its figures}, and with PyTorch the ratio and whether losses are near."""
    tokens = options.ranks * options.rows * options.sequence
    made = {name: side(outcomes, tokens) for name, outcomes in by_name.items()}
    rounds = [(t, o) for t, o in zip(by_name["tutti"], by_name.get("torch", []))
              if not t.failure and not o.failure]
    if rounds:
        made["torch / tutti"] = spread([o.step_s() / t.step_s() for t, o in rounds])
        made["torch / tutti, fastest steps"] = spread([o.fastest_s() / t.fastest_s()
                                                       for t, o in rounds])
        ours = made["tutti"]["loss_at_the_end"]["median"]
        theirs = made["torch"]["loss_at_the_end"]["median"]
        made["losses_are_near"] = abs(ours - theirs) <= NEAR * theirs
    return made


def told(value, digits=0):
    if value is None:
        return "-"
    return "{median:.{d}f} ({min:.{d}f}..{max:.{d}f})".format(d=digits, **value)


def row(dtype, name, made):
    cells = [dtype, name, told(made.get("step_ms"), 1),
             told(made.get("fastest_step_ms"), 1), told(made.get("tokens_per_second")),
             told(made.get("loss_at_the_end"), 3)]
    return "| " + " | ".join(cells) + " |"


def remarks(result):
    for dtype, made in result["types"].items():
        if "torch / tutti" in made:
            yield (f"{dtype}: PyTorch's step takes {told(made['torch / tutti'], 2)} of Tutti's "
                   f"time; the fastest {told(made['torch / tutti, fastest steps'], 2)}")
            if not made["losses_are_near"]:
                yield f"{dtype}: the losses at the end are not near: one side may be wrong"
        for name in ("tutti", "torch"):
            for failure in made.get(name, {}).get("failures", []):
                yield f"{dtype}: a launch of {name} failed: {failure}"
    if result["busy_at_start"] > 0.5:
        yield (f"the machine was busy ({100 * result['busy_at_start']:.0f} % of its processors at "
               "the start): medians mean little; the fastest steps tell more")


def text(result):
    """Markdown."""
    plan = result["plan"]
    lines = [f"# {result['title']}", "",
             f"{result['date']}, Tutti {result['revision']}: `{result['command']}`", "",
             f"{plan['ranks']} data-parallel ranks with one thread each, {plan['rows']} rows of "
             f"{plan['sequence']} tokens",
             f"a rank and step; the median over {plan['launches']} launches of the median over "
             f"{plan['steps']} steps, in",
             "brackets the least and the greatest launch. Beside it PyTorch "
             f"{result['torch']}", "with DistributedDataParallel over Gloo.", "",
             "| type | | ms a step | ms of the fastest | tokens/s | loss at the end |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    for dtype, made in result["types"].items():
        lines += [row(dtype, name, made[name]) for name in ("tutti", "torch") if name in made]
    lines += [""] + [f"- {remark}" for remark in remarks(result)]
    lines += ["", "## Machine", ""]
    lines += [f"- {name}: {value}" for name, value in result["machine"].items()]
    lines += [f"- processors busy at the start: {100 * result['busy_at_start']:.0f} %",
              f"- time stolen by the hypervisor: {100 * result['stolen_share']:.1f}%"]
    return "\n".join(lines) + "\n"
