#!/usr/bin/env python3
"""Tests which measurements count where a hypervisor moves cores, and how they are kept awake."""
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import awake  # noqa: E402
import figures  # noqa: E402
import launching  # noqa: E402
import machine  # noqa: E402
import nearness  # noqa: E402
import report  # noqa: E402


class Nearness(unittest.TestCase):
    WORK = ("all_reduce", "f32", 8)

    def measured(self, *prices):
        """One launch for each (before, after), of as many microseconds; None: it failed."""
        return launching.Outcome(library="test", launches=[
            {self.WORK: {"bytes": 8, "median_us": float(max(line)), "line_ns": list(line)}}
            if line else None for line in prices])

    def chosen(self, **outcomes):
        choice = nearness.choose(outcomes)
        left = nearness.leave_out(outcomes, choice)
        return choice, {name: figures.launch_values(outcome, self.WORK)
                        for name, outcome in left.items()}

    def test_every_launch_is_told_in_a_line(self):
        told = report.json_launches({"a": self.measured((100, 120), None)})
        self.assertEqual(told, {"a": {"all_reduce f32 8": ["120.0      100,120", None]}})

    def test_with_cores_of_one_kind_everything_counts(self):
        choice, values = self.chosen(a=self.measured((100, 120), (130, 90), None),
                                     b=self.measured((110, 100), (0, 0), (150, 100)))
        self.assertEqual((choice.kind, choice.rounds, choice.left_out), (0, 3, 0))
        self.assertEqual(values, {"a": [120, 130, None], "b": [110, 0, 150]})
        self.assertEqual(list(report.cores_lines(choice)), [])

    def test_what_older_harnesses_measured_counts(self):
        old = launching.Outcome(launches=[
            {self.WORK: {"bytes": 8, "median_us": value}} for value in (2.0, 3.0)])
        choice = nearness.choose({"a": old})
        self.assertEqual((choice.kind, choice.rounds), (0, 2))

    def test_the_state_with_more_whole_rounds_counts(self):
        near, far = (100, 110), (470, 460)
        choice, values = self.chosen(a=self.measured(near, far, near, near),
                                     b=self.measured(near, near, far, near))
        self.assertEqual((choice.kind, choice.rounds, choice.left_out, choice.measured),
                         (105, 2, 2, 8))
        self.assertEqual(values, {"a": [110, None, 110, 110], "b": [110, 110, None, 110]})
        choice, values = self.chosen(a=self.measured(far, far, near),
                                     b=self.measured(far, far, far))
        self.assertEqual((choice.kind, choice.rounds, choice.left_out), (465, 2, 1))
        self.assertEqual(values["a"], [470, 470, None])
        told = list(report.cores_lines(choice))
        self.assertEqual(len(told), 1)
        self.assertIn("about 105 and 465 ns", told[0])
        self.assertIn("at 465 ns counts", told[0])
        self.assertIn("1 of 6 measurements are left out", told[0])

    def test_cores_that_move_meanwhile_are_of_neither_kind(self):
        choice, values = self.chosen(a=self.measured((100, 470), (100, 100), (470, 100)))
        self.assertEqual((choice.kind, choice.rounds, choice.left_out), (100, 1, 2))
        self.assertEqual(values["a"], [None, 100, None])

    def test_a_few_with_nearer_cores_make_no_difference(self):
        near, far = (100, 110), (470, 460)
        threads_of_a_core = (50, 52)
        choice, values = self.chosen(a=self.measured(near, far, near, far, far),
                                     b=self.measured(threads_of_a_core, far, near, far, far))
        self.assertEqual((choice.kind, choice.rounds, choice.left_out), (465, 3, 4))
        self.assertEqual(values["a"], [None, 470, None, 470, 470])
        self.assertEqual(choice.kinds, [51, 105, 465])
        self.assertIn("about 51, 105 and 465 ns", next(report.cores_lines(choice)))

    def test_there_are_more_rounds_until_enough_are_of_one_state(self):
        prices = iter([(100, 100), (470, 470), (100, 100), (100, 100), (100, 100)])
        plan = launching.Plan(["all_reduce"], ["f32"], [8], 3, 1, 1, 300)

        def launch(*_):
            rows = self.measured(next(prices)).launches[0]
            return {"library": "test", "cpus": []}, rows, {}
        with mock.patch.object(launching, "launch", launch):
            outcomes = launching.run([types.SimpleNamespace(name="a")], plan, lambda _: None,
                                     machine.Quiet(0, price=lambda: 1.0))
        self.assertEqual(len(outcomes["a"].launches), 4)


class Awake(unittest.TestCase):
    def test_demands_to_be_woken_without_delay_as_long_as_it_lasts(self):
        with tempfile.NamedTemporaryFile() as demand:
            with awake.cores_awake(demand.name) as awake_now:
                self.assertTrue(awake_now)
                self.assertEqual(pathlib.Path(demand.name).read_bytes(), bytes(4))
            with awake.cores_awake("/nonexistent/demand") as awake_now:
                self.assertFalse(awake_now)


if __name__ == "__main__":
    unittest.main()
