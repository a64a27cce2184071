#!/usr/bin/env python3
"""Tests the arithmetic and the wording of perf/compare on figures that are known."""
import pathlib
import sys
import types
import unittest
import xml.dom.minidom

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import chart  # noqa: E402
import contenders  # noqa: E402
import figures  # noqa: E402
import launching  # noqa: E402
import report  # noqa: E402

MIB = 1 << 20


def outcome(*rounds):
    """Each round: {bytes: median}, or None for a launch that failed."""
    return launching.Outcome(library="test", launches=[
        {size: {"bytes": size, "median_us": value} for size, value in rows.items()}
        if rows else None for rows in rounds])


def contender(name, role):
    return types.SimpleNamespace(name=name, role=role)


PRESENT = [contender("tutti plain", "tutti"), contender("tutti allocated", "tutti"),
           contender("a", "peer"), contender("b", "peer")]


class Figures(unittest.TestCase):
    def setUp(self):
        self.outcomes = {
            "tutti plain": outcome({8: 2.0, MIB: 100}, {8: 4.0, MIB: 100}, {8: 3.0, MIB: 100}),
            "tutti allocated": outcome({8: 1.0, MIB: 100}, None, {8: 1.0, MIB: 50}),
            "a": outcome({8: 4.0, MIB: 150}, {8: 4.0, MIB: 120}, {8: 9.0, MIB: 90}),
            "b": outcome({8: 5.0, MIB: 100}, {8: 5.0, MIB: 110}, {8: 5.0, MIB: 500}),
        }
        self.rows = figures.table(PRESENT, self.outcomes, [8, MIB])

    def test_median_and_extremes_over_launches(self):
        self.assertEqual(self.rows[0].times["tutti plain"], figures.Spread(3.0, 2.0, 4.0))

    def test_best_peer_has_the_least_median_and_need_not_be_one_peer(self):
        self.assertEqual([row.best_peer for row in self.rows], ["a", "b"])

    def test_ratios_are_taken_within_rounds(self):
        # 4/2, 4/4, 9/3: the ratio of medians would be 4/3.
        self.assertEqual(self.rows[0].gains["tutti plain"], figures.Spread(2.0, 1.0, 3.0))

    def test_a_failed_launch_is_left_out_with_its_round(self):
        self.assertEqual(self.rows[0].gains["tutti allocated"], figures.Spread(6.5, 4.0, 9.0))
        self.assertEqual(self.rows[1].times["tutti allocated"], figures.Spread(75, 50, 100))

    def test_an_older_tutti_is_compared_with_its_like_and_is_no_peer(self):
        self.outcomes["tutti@1 plain"] = outcome({8: 1.0, MIB: 10}, {8: 4.0, MIB: 50},
                                                 {8: 9.0, MIB: 90})
        present = [*PRESENT, contender("tutti@1 plain", "before")]
        rows = figures.table(present, self.outcomes, [8, MIB])
        self.assertEqual(rows[1].best_peer, "b")
        self.assertEqual(rows[1].changes, {"tutti plain": figures.Spread(0.5, 0.1, 0.9)})

    def test_aims_name_the_sizes_that_miss_them(self):
        verdicts = {name: (reached, missed)
                    for name, _, _, reached, missed in figures.judge(self.rows)}
        self.assertEqual(verdicts["tutti plain"], ([8, MIB], []))
        self.assertEqual(verdicts["tutti allocated"], ([MIB], []))
        self.outcomes["tutti allocated"] = outcome({MIB: 100}, {MIB: 100}, {MIB: 100})
        rows = figures.table(PRESENT, self.outcomes, [8, MIB])
        self.assertEqual(figures.judge(rows)[1][3:], ([], [MIB]))

    def test_without_peers_there_are_no_ratios(self):
        alone = {"tutti plain": self.outcomes["tutti plain"]}
        row = figures.table(PRESENT[:1], alone, [8])[0]
        self.assertIsNone(row.best_peer)
        self.assertEqual((row.gains, figures.judge([row])), ({}, []))


class Wording(unittest.TestCase):
    def test_sizes(self):
        self.assertEqual([report.size_name(size) for size in (8, 1024, 1536, MIB)],
                         ["8 B", "1 KiB", "1536 B", "1 MiB"])
        self.assertEqual(report.size_name(64 * MIB, short=True), "64M")

    def test_three_significant_digits(self):
        self.assertEqual([report.number(v) for v in (0.317, 17.46, 9.995, 160455.3)],
                         ["0.32", "17.5", "9.99", "160455"])

    def test_every_contender_that_failed_is_named_with_its_reason(self):
        broken = launching.Outcome(launches=[None], failures=["no such thing"])
        shaky = outcome({8: 1.0}, None)
        shaky.failures.append("slow")
        said = "\n".join(report.absence_lines({"c": "not installed"}, {"a": broken, "b": shaky}))
        self.assertIn("c did not take part: not installed", said)
        self.assertIn("a did not run: no such thing", said)
        self.assertIn("b: 1 of 2 launches failed: slow", said)

    def test_ranks_on_the_same_core_are_told(self):
        together, apart = outcome({8: 1.0}), outcome({8: 1.0})
        together.cpus, apart.cpus = [[0, 1], [0, 1]], [[0], [1]]
        told = list(report.pinning_lines({"a": together, "b": apart}, 2, 2))
        self.assertEqual(len(told), 1)
        self.assertIn("a: ranks were not pinned apart", told[0])
        self.assertEqual(list(report.pinning_lines({"a": together}, 4, 2)), [])

    def test_a_cell_for_every_column(self):
        outcomes = {"tutti plain": outcome({8: 2.0}), "tutti allocated": outcome(None),
                    "a": outcome({8: 4.0}), "b": outcome()}
        rows = figures.table(PRESENT, outcomes, [8])
        header, lines = report.cells(rows, PRESENT)
        self.assertEqual([len(line) for line in lines], [len(header)])
        self.assertIn("2.00 (2.00..2.00)", lines[0])
        self.assertEqual(lines[0].count("-"), 3)  # of "b" and of what is allocated


class Chart(unittest.TestCase):
    def test_is_well_formed_and_draws_each_contender_that_ran(self):
        outcomes = {"tutti plain": outcome({8: 2.0, MIB: 90}), "a": outcome({8: 4.0, MIB: 80})}
        rows = figures.table([PRESENT[0], PRESENT[2]], outcomes, [8, MIB])
        picture = xml.dom.minidom.parseString(chart.draw(rows, "a < b"))
        self.assertEqual(len(picture.getElementsByTagName("polyline")), 4)


class Contenders(unittest.TestCase):
    def test_an_unknown_name_is_refused_before_anything_is_built(self):
        with self.assertRaises(KeyError) as refused:
            contenders.assemble(2, pathlib.Path("nowhere"), None, ["openmpi", "nonsense"])
        self.assertEqual(refused.exception.args[0], "nonsense")
        self.assertIn("tutti allocated", refused.exception.args[1])


if __name__ == "__main__":
    unittest.main()
