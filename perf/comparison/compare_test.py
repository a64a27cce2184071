#!/usr/bin/env python3
"""Tests the arithmetic and the wording of perf/compare on figures that are known."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock
import xml.dom.minidom

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import builds  # noqa: E402
import chart  # noqa: E402
import claims  # noqa: E402
import contenders  # noqa: E402
import figures  # noqa: E402
import launching  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402
import selection  # noqa: E402
import spawn  # noqa: E402

MIB = 1 << 20
KIND = ("all_reduce", "f32")


def outcome(*rounds, way=""):
    """Each round: {bytes: median}, or None for a launch that failed."""
    return launching.Outcome(library="test", launches=[
        {(*KIND, size): {"bytes": size, "median_us": value, "way": way}
         for size, value in rows.items()} if rows else None for rows in rounds])


def contender(name, role, floor=""):
    return types.SimpleNamespace(name=name, role=role, floor=floor)


def rows_of(present, outcomes, sizes):
    return figures.table(present, outcomes, KIND, sizes).rows


PRESENT = [contender("tutti plain", "tutti", "floor staged"),
           contender("tutti allocated", "tutti", "floor direct"),
           contender("a", "peer"), contender("b", "peer")]
FLOOR = contender("floor direct", "floor")


class Figures(unittest.TestCase):
    def setUp(self):
        self.outcomes = {
            "tutti plain": outcome({8: 2.0, MIB: 100}, {8: 4.0, MIB: 100}, {8: 3.0, MIB: 100}),
            "tutti allocated": outcome({8: 1.0, MIB: 100}, None, {8: 1.0, MIB: 50}),
            "a": outcome({8: 4.0, MIB: 150}, {8: 4.0, MIB: 120}, {8: 9.0, MIB: 90}),
            "b": outcome({8: 5.0, MIB: 100}, {8: 5.0, MIB: 110}, {8: 5.0, MIB: 500}),
        }
        self.rows = rows_of(PRESENT, self.outcomes, [8, MIB])

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
        rows = rows_of(present, self.outcomes, [8, MIB])
        self.assertEqual(rows[1].best_peer, "b")
        self.assertEqual(rows[1].changes, {"tutti plain": figures.Spread(0.5, 0.1, 0.9)})

    def test_a_floor_is_no_peer_and_is_held_against_each_tutti(self):
        self.outcomes["floor direct"] = outcome({8: 1.0}, {8: 1.0}, {8: 1.5}, way="lines")
        row = rows_of([*PRESENT, FLOOR], self.outcomes, [8])[0]
        self.assertEqual(row.best_peer, "a")
        self.assertEqual(row.ways, {"floor direct": "lines"})
        self.assertEqual(row.reached["tutti plain"]["floor direct"], figures.Spread(0.5, 0.25, 0.5))
        self.assertEqual(row.room["floor direct"], figures.Spread(4.0, 4.0, 6.0))

    def test_who_is_reported_beside_the_peers_is_not_the_best_of_them(self):
        self.outcomes["fast"] = outcome(*[{8: 0.1, MIB: 1.0}] * 3)
        present = [*PRESENT, contender("fast", "beside")]
        rows = rows_of(present, self.outcomes, [8, MIB])
        self.assertEqual([row.best_peer for row in rows], ["a", "b"])
        self.assertEqual(rows[0].times["fast"], figures.Spread(0.1, 0.1, 0.1))
        self.assertEqual(list(report.beside_lines(present)),
                         ["fast: reported beside the peers; the best peer is the best of a, b"])
        self.assertEqual(list(report.beside_lines(PRESENT)), [])

    def test_without_peers_there_are_no_ratios(self):
        alone = {"tutti plain": self.outcomes["tutti plain"]}
        row = rows_of(PRESENT[:1], alone, [8])[0]
        self.assertIsNone(row.best_peer)
        self.assertEqual((row.gains, row.room), ({}, {}))


class Claims(unittest.TestCase):
    """Five rounds in which a peer takes 100, the floor what is given, and Tutti 50."""

    def verdicts(self, floor, ours=50.0, size=MIB, rounds=5, ranks=2):
        outcomes = {"tutti allocated": outcome(*[{size: ours}] * rounds),
                    "a": outcome(*[{size: 100.0}] * rounds),
                    "floor direct": outcome(*[{size: floor}] * rounds)}
        present = [PRESENT[1], PRESENT[2], FLOOR]
        table = figures.table(present, outcomes, KIND, [size])
        return {(verdict.claim.number, verdict.claim.measure): verdict for verdict in
                claims.judge([table], report.floors_of(present), ranks)}

    def test_the_figure_counts_where_the_machine_has_room_for_it(self):
        found = self.verdicts(floor=10.0)[1, "peer"].findings[0]
        self.assertEqual((found.value, found.needed, found.holds), (2.0, 2.5, False))

    def test_no_more_is_asked_for_than_the_floor_allows(self):
        found = self.verdicts(floor=45.0)[1, "peer"].findings[0]
        self.assertAlmostEqual(found.needed, 0.85 * 100 / 45)
        self.assertTrue(found.holds)

    def test_what_is_reached_of_the_floor_is_a_claim_of_its_own(self):
        self.assertTrue(self.verdicts(floor=40.0)[5, "floor"].findings[0].holds)
        self.assertFalse(self.verdicts(floor=39.0)[5, "floor"].findings[0].holds)

    def test_short_calls_may_reach_the_peer_or_the_floor(self):
        def short(floor, ours):
            return self.verdicts(floor, ours, size=8)[3, "either"].findings[0]
        self.assertTrue(short(floor=10.0, ours=80.0).holds)  # 1.25 of the peer
        self.assertTrue(short(floor=80.0, ours=99.0).holds)  # 0.81 of the floor
        self.assertFalse(short(floor=60.0, ours=99.0).holds)

    def test_rank_order_may_cost_a_quarter_more(self):
        def finding(ordered):
            outcomes = {"tutti plain": outcome(*[{MIB: 100.0}] * 5),
                        "tutti plain ordered": outcome(*[{MIB: ordered}] * 5)}
            present = [PRESENT[0], contender("tutti plain ordered", "ordered")]
            table = figures.table(present, outcomes, KIND, [MIB])
            verdict = claims.judge([table], {}, 4)[0]
            self.assertEqual((verdict.claim.number, len(verdict.findings)), (7, 1))
            said = list(report.verdict_lines([verdict], claims.ROUNDS))[0]
            self.assertIn("of the speed in any order when in rank order", said)
            header, lines = report.cells(table.rows, present)
            self.assertIn("tutti plain / in rank order", header)
            self.assertEqual(len(header), len(lines[0]))
            return verdict.findings[0]
        self.assertTrue(finding(ordered=124.0).holds)
        self.assertFalse(finding(ordered=127.0).holds)

    def test_sums_of_short_types_are_held_against_the_bytes_of_f32(self):
        both = outcome(*[{MIB: 100.0}] * 5)
        for rows, slow in zip(both.launches, (130.0, 120.0, 120.0, 120.0, 900.0)):
            rows["all_reduce", "f16", MIB] = {"median_us": slow}
        present = PRESENT[:1]
        tables = [figures.table(present, {"tutti plain": both}, ("all_reduce", name), [MIB, 8])
                  for name in ("f32", "f16")]
        verdicts = claims.judge(tables, {}, 2)
        self.assertEqual([(verdict.claim.number, verdict.type) for verdict in verdicts],
                         [(7, "f16")])
        found = verdicts[0].findings[0]
        self.assertAlmostEqual(found.value, 100 / 120)
        self.assertTrue(found.holds)
        said = list(report.verdict_lines(verdicts, claims.ROUNDS))[0]
        self.assertIn("all_reduce of f16, tutti plain", said)

    def test_more_ranks_have_a_claim_of_their_own(self):
        self.assertEqual(list(self.verdicts(floor=10.0, ranks=4)), [(4, "peer")])

    def findings_of(self, name, floor, rows, ranks=2, tcp=False):
        """{(number, measure): {bytes: (needed, holds)}} of {bytes: (peer's, floor's, ours)}."""
        places = {"a": 0, floor: 1, name: 2}
        outcomes = {who: outcome(*[{size: of[at] for size, of in rows.items()}] * 5)
                    for who, at in places.items()}
        present = [contender(name, "tutti", floor), PRESENT[2], contender(floor, "floor")]
        table = figures.table(present, outcomes, KIND, list(rows))
        return {(verdict.claim.number, verdict.claim.measure):
                {found.size: (round(found.needed, 3), found.holds) for found in verdict.findings}
                for verdict in claims.judge([table], report.floors_of(present), ranks, tcp)}

    def test_at_256_mib_four_times_the_best_peer_where_the_floor_allows_it(self):
        found = self.findings_of("tutti allocated", "floor direct", {
            256 * MIB - 4: (100.0, 10.0, 39.0), 256 * MIB: (100.0, 10.0, 26.0)})
        self.assertEqual(found[1, "peer"], {256 * MIB: (4.0, False)})
        found = self.findings_of("tutti allocated", "floor direct",
                                 {256 * MIB: (100.0, 25.0, 29.0)})
        self.assertEqual(found[1, "peer"], {256 * MIB: (3.4, True)})

    def test_more_ranks_than_cores_are_judged_at_every_size(self):
        for ranks in (4, 8):
            found = self.findings_of("tutti plain", "floor staged", {
                8: (100.0, 1.0, 50.0), MIB: (100.0, 1.0, 51.0), 256 * MIB: (100.0, 80.0, 93.0)},
                ranks)
            self.assertEqual(found, {(4, "peer"): {
                8: (2.0, True), MIB: (2.0, False), 256 * MIB: (1.062, True)}})
        self.assertNotIn((4, "peer"), self.findings_of("tutti plain", "floor staged",
                                                       {8: (100.0, 1.0, 50.0)}, 2))

    def test_over_tcp_no_slower_at_any_size_and_near_the_socket_pair_from_1_mib(self):
        found = self.findings_of("tutti tcp", "floor socket", {
            8: (100.0, 50.0, 105.0), 64 * 1024: (100.0, 50.0, 106.0),
            MIB: (100.0, 84.0, 100.0), 256 * MIB: (100.0, 86.0, 100.0)}, tcp=True)
        self.assertEqual(found, {
            (6, "peer"): {8: (0.95, True), 64 * 1024: (0.95, False), MIB: (0.95, True),
                          256 * MIB: (0.95, True)},
            (6, "floor"): {MIB: (0.85, False), 256 * MIB: (0.85, True)}})

    def test_short_calls_end_at_1_kib(self):
        found = self.findings_of("tutti allocated", "floor direct", {
            1024: (100.0, 10.0, 86.9), 1028: (100.0, 10.0, 10.0)})
        self.assertEqual(found[3, "either"], {1024: (1.15, True)})

    def test_a_round_counts_where_both_sides_ran(self):
        outcomes = {"tutti plain": outcome(*[{8: 1.0}] * 5),
                    "a": outcome(*[{8: 1.0}] * 4, None)}
        present = [PRESENT[0], PRESENT[2]]
        table = figures.table(present, outcomes, KIND, [8])
        self.assertEqual({verdict.rounds for verdict in claims.judge([table], {}, 2)}, {4})

    def test_fewer_than_five_rounds_prove_nothing(self):
        verdict = self.verdicts(floor=10.0, rounds=4)[1, "peer"]
        said = list(report.verdict_lines([verdict], claims.ROUNDS))[0]
        self.assertIn("missed at 1 MiB (2.00, needs 2.50)", said)
        self.assertIn("not proved, 4 of 5 rounds", said)


class Launching(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_in_folder(self, program):
        """A Python that launches a contender from there, and says so."""
        code = str(pathlib.Path(launching.__file__).parent)
        head = (f"import sys; sys.path.insert(0, {code!r})\n"
                f"import launching, builds, contenders, pathlib\n"
                f"launching.shared_memory = lambda: {self.folder.name!r}\n"
                f"builds.OWN_BUILDS = pathlib.Path({self.folder.name!r}) / 'own'\n")
        return subprocess.Popen([sys.executable, "-c", head + program], stderr=subprocess.DEVNULL)

    def left(self):
        return list(pathlib.Path(self.folder.name).glob(launching.PREFIX + "*"))

    def wait_for_launch(self):
        for _ in range(400):
            told = list(pathlib.Path(self.folder.name).glob("*/pid"))
            if told and told[0].read_text().strip():
                return int(told[0].read_text())
            time.sleep(0.1)
        self.fail("nothing was launched")

    LAUNCH = ("contender = contenders.Contender('c', 'peer', 'x', "
              "('sh', '-c', 'echo $$ > $COMPARE_FOLDER/../pid; exec sleep 300', 'sh'))\n"
              "plan = launching.Plan([], [], [], 1, 1, 1, 300)\n"
              "launching.launch(contender, plan, 300)\n")

    def test_who_is_told_to_end_leaves_nothing_behind(self):
        for told in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            run = self.run_in_folder("launching.end_in_order()\n" + self.LAUNCH)
            contender_pid = self.wait_for_launch()
            run.send_signal(told)
            self.assertNotEqual(run.wait(timeout=50), 0)
            self.assertEqual(self.left(), [])
            with self.assertRaises(ProcessLookupError):
                os.kill(contender_pid, 0)

    def wait_for_end(self, pid):
        for _ in range(400):
            try:
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
                if state == "Z":  # nobody has asked about it yet
                    return
            except FileNotFoundError:
                return
            time.sleep(0.1)
        self.fail("the contender lives on")

    def test_a_run_that_is_killed_ends_its_contender(self):
        run = self.run_in_folder(self.LAUNCH)
        contender_pid = self.wait_for_launch()
        run.kill()
        run.wait(timeout=50)
        self.wait_for_end(contender_pid)

    def test_ranks_end_with_who_has_spawned_them(self):
        program = ("import os, pathlib, time; folder = pathlib.Path(os.environ['COMPARE_FOLDER'])\n"
                   "(folder / 'pid').write_text(str(os.getpid())); time.sleep(300)")
        place = pathlib.Path(self.folder.name) / "rank"
        place.mkdir()
        spawned = subprocess.Popen([sys.executable, spawn.__file__, "1", "--", sys.executable, "-c",
                                    program], env={**os.environ, "COMPARE_FOLDER": str(place)})
        rank_pid = self.wait_for_launch()
        spawned.kill()
        spawned.wait(timeout=50)
        self.wait_for_end(rank_pid)

    def test_what_a_killed_run_left_is_removed_and_nothing_that_is_in_use(self):
        dead = pathlib.Path(self.folder.name) / (launching.PREFIX + "dead")
        dead.mkdir()
        (dead / "stage").touch()
        young = dead.with_name(launching.PREFIX + "young")
        young.mkdir()
        used = dead.with_name(launching.PREFIX + "used")
        used.mkdir()
        held = launching.lock(used)
        other = dead.with_name("other")
        other.mkdir()
        for path in (dead, used, other):
            os.utime(path, (0, 0))
        launching.remove_leftovers(self.folder.name)
        os.close(held)
        self.assertEqual(sorted(path.name for path in dead.parent.iterdir()),
                         ["other", used.name, young.name])


class Planning(unittest.TestCase):
    SIZES = selection.parse_sizes("8,1K,64K,1M,16M,256M")

    def test_five_launches_of_the_whole_comparison_fit_into_eight_minutes(self):
        share = 480 / (5 * 15)  # more contenders than there are
        seconds = launching.seconds_per_size(share, 5, self.SIZES, 2, 3)
        launch = launching.forced_s(5, self.SIZES, 2, 3) + 1.6 * 5 * len(self.SIZES) * seconds
        self.assertLess(launch, share)

    def test_where_there_is_little_time_each_size_has_some(self):
        self.assertEqual(launching.seconds_per_size(1, 5, self.SIZES, 8, 3), 0.02)
        self.assertEqual(launching.seconds_per_size(100, 1, [8], 2, 3), 0.5)


class Quiet(unittest.TestCase):
    def test_waits_until_a_yield_is_cheap_and_not_longer_than_it_may(self):
        prices, naps = iter([50.0, 50.0, 0.5, 50.0, 50.0]), []
        quiet = machine.Quiet(0.8, lambda: next(prices), naps.append)
        quiet.wait()
        self.assertEqual((quiet.prices, len(naps)), ([0.5], 2))
        quiet.wait()
        self.assertEqual((quiet.prices, len(naps)), ([0.5, 50.0], 3))
        self.assertEqual(quiet.disturbed(), 0.5)

    def test_what_else_ran_is_told_with_its_price(self):
        quiet = machine.Quiet(0, lambda: 49.0)
        quiet.wait()
        for crowded, said in ((True, "mostly that price"), (False, "given the processor back")):
            self.assertIn(said, "".join(report.quiet_lines(quiet, crowded)))
        calm = machine.Quiet(0, lambda: 0.5)
        calm.wait()
        self.assertEqual(list(report.quiet_lines(calm, True)), [])


class Spawning(unittest.TestCase):
    def test_each_rank_learns_who_it_is(self):
        program = ("import os; "
                   "os.write(1, f\"{os.environ['RANK']} {os.environ['WORLD_SIZE']}\\n\".encode())")
        told = subprocess.run([sys.executable, spawn.__file__, "3", "--", sys.executable, "-c",
                               program], capture_output=True, text=True, check=True, timeout=50)
        self.assertEqual(sorted(told.stdout.splitlines()), ["0 3", "1 3", "2 3"])

    def test_ranks_can_be_batch_work(self):
        program = "import os; os.write(1, f'{os.sched_getscheduler(0)} '.encode())"
        told = subprocess.run([sys.executable, spawn.__file__, "2", "--batch", "--",
                               sys.executable, "-c", program], capture_output=True, text=True,
                              check=True, timeout=50)
        self.assertEqual(told.stdout, f"{os.SCHED_BATCH} " * 2)

    def test_one_that_fails_ends_the_others(self):
        program = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit(7); time.sleep(99)"
        ended = subprocess.run([sys.executable, spawn.__file__, "2", "--", sys.executable, "-c",
                                program], check=False, timeout=50)
        self.assertEqual(ended.returncode, 7)

    def test_ranks_go_to_the_hosts_in_turn(self):
        hosts = [("left", "10.0.0.1"), ("right", "10.0.0.2")]
        self.assertEqual(spawn.parse(["2", "--pin", "--hosts", "left=10.0.0.1,right=10.0.0.2",
                                      "--", "program", "x"]),
                         spawn.Job(2, True, False, hosts, ["program", "x"]))
        self.assertEqual(spawn.entering(hosts, 3, ["program"]),
                         ["ip", "netns", "exec", "right", "program"])


class Selection(unittest.TestCase):
    def test_names_come_in_the_known_order_once(self):
        parse = selection.names_from(selection.OPERATIONS)
        self.assertEqual(parse("broadcast,all_reduce,broadcast"), ["all_reduce", "broadcast"])
        self.assertEqual(parse("all"), list(selection.OPERATIONS))
        with self.assertRaises(argparse.ArgumentTypeError):
            parse("all_reduce,nonsense")

    def test_sizes(self):
        self.assertEqual(selection.parse_sizes("1K,8,8"), [8, 1024])
        for wrong in ("0", "7", "8X", ""):
            with self.assertRaises(argparse.ArgumentTypeError):
                selection.parse_sizes(wrong)


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
        rows = rows_of(PRESENT, outcomes, [8])
        header, lines = report.cells(rows, PRESENT)
        self.assertEqual([len(line) for line in lines], [len(header)])
        self.assertIn("2.00 (2.00..2.00)", lines[0])
        self.assertEqual(lines[0].count("-"), 3)  # of "b" and of what is allocated

    def test_a_floor_has_its_way_and_a_column_for_whom_it_is_the_floor(self):
        outcomes = {"tutti plain": outcome({8: 2.0}), "tutti allocated": outcome({8: 4.0}),
                    "a": outcome({8: 4.0}), "b": outcome({8: 4.0}),
                    "floor direct": outcome({8: 1.0}, way="lines")}
        present = [*PRESENT, FLOOR]
        header, lines = report.cells(rows_of(present, outcomes, [8]), present)
        cells = dict(zip(header, lines[0]))
        self.assertEqual(cells["floor direct"], "1.00 (1.00..1.00) lines")
        self.assertEqual(cells["floor direct / tutti allocated"], "0.25")
        self.assertNotIn("floor direct / tutti plain", cells)

    def test_what_a_library_cannot_do_is_told(self):
        able = outcome({8: 1.0})
        able.unable = {("reduce_scatter", "f32"): "has none"}
        self.assertEqual(list(report.absence_lines({}, {"a": able})),
                         ["a did not do reduce_scatter of f32: has none"])


class Chart(unittest.TestCase):
    def test_is_well_formed_and_draws_each_contender_that_ran(self):
        outcomes = {"tutti plain": outcome({8: 2.0, MIB: 90}), "a": outcome({8: 4.0, MIB: 80})}
        table = figures.table([PRESENT[0], PRESENT[2]], outcomes, KIND, [8, MIB])
        nothing = figures.table([PRESENT[0]], {"tutti plain": outcome()}, KIND, [8, MIB])
        picture = xml.dom.minidom.parseString(chart.draw([table, nothing, table], "a < b"))
        self.assertEqual(len(picture.getElementsByTagName("polyline")), 2 * 4)


class Contenders(unittest.TestCase):
    def test_an_unknown_name_is_refused_before_anything_is_built(self):
        with self.assertRaises(KeyError) as refused:
            contenders.assemble(contenders.Setting(2, pathlib.Path("nowhere")), None,
                                ["openmpi", "nonsense"])
        self.assertEqual(refused.exception.args[0], "nonsense")
        self.assertIn("tutti allocated", refused.exception.args[1])

    def test_over_tcp_there_are_others_and_tutti_is_told_so(self):
        setting = contenders.Setting(2, pathlib.Path("nowhere"),
                                     (("left", "10.0.0.1"), ("right", "10.0.0.2")))
        names = [name for names, _ in contenders.groups(setting, None) for name in names]
        self.assertEqual(names, ["tutti tcp", "openmpi", "mpich", "gloo", "intel mpi", "oneccl",
                                 "oneccl ofi", "floor socket"])
        build = (pathlib.Path("tutti"), pathlib.Path("harness"))
        tutti = contenders.tuttis("", "tutti", build, setting)[0]
        self.assertEqual(dict(tutti.environment), {"TUTTI_TRANSPORT": "tcp"})
        self.assertIn("left=10.0.0.1,right=10.0.0.2", tutti.launcher)

    def test_sums_in_rank_order_take_part_where_a_claim_is_about_them(self):
        def taking_part(operations):
            names = [name for names, _ in contenders.groups(setting, None) for name in names]
            return [name for name in names if name.endswith("ordered") and
                    contenders.by_default(name, operations)]
        setting = contenders.Setting(2, pathlib.Path("nowhere"))
        self.assertEqual(taking_part(["all_reduce", "broadcast"]),
                         ["tutti plain ordered", "tutti allocated ordered"])
        self.assertEqual(taking_part(["broadcast"]), [])
        build = (pathlib.Path("tutti"), pathlib.Path("harness"))
        made = contenders.ordered(contenders.tuttis("", "tutti", build, setting))[0]
        self.assertEqual(dict(made.environment), {"TUTTI_REDUCE_ORDER": "rank_tree"})
        self.assertEqual(made.work(["all_reduce", "reduce_scatter", "broadcast"]),
                         ["all_reduce", "reduce_scatter"])

    def test_what_is_not_installed_is_named_with_the_reason_and_nobody_fails(self):
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(builds, "INTEL", pathlib.Path(folder)):
            setting = contenders.Setting(2, pathlib.Path("nowhere"))
            present, absent = contenders.assemble(setting, None, ["intel mpi", "oneccl"])
        self.assertEqual(present, [])
        self.assertEqual(list(absent), ["intel mpi", "oneccl"])
        for reason in absent.values():
            self.assertRegex(reason, "not installed .*impi-devel.*--setup installs it")

    def test_packages_that_cannot_be_had_are_told_in_the_installers_words(self):
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(builds, "OWN_BUILDS", pathlib.Path(folder)):
            with self.assertRaisesRegex(builds.Unavailable, "ERROR: No matching distribution"):
                builds.run_logged(["sh", "-c", "echo Looking; echo 'ERROR: No matching "
                                   "distribution found for x'; exit 1"], builds.new_log("setup"))

    def test_intels_libraries_are_no_peers_and_meet_as_they_are_told(self):
        hosts = (("left", "10.0.0.1"), ("right", "10.0.0.2"))
        with mock.patch.object(builds, "intel", lambda name, *_: ("mpiexec", pathlib.Path(name))):
            here, there = ([*contenders.intel_mpi(setting), *contenders.oneccl(setting)]
                           for setting in (contenders.Setting(2, pathlib.Path("nowhere")),
                                           contenders.Setting(2, pathlib.Path("nowhere"), hosts)))
        self.assertEqual({made.role for made in here + there}, {"beside"})
        for made, fabric, provider in ((here[0], "shm", None), (there[0], "ofi", "tcp")):
            self.assertEqual(dict(made.environment)["I_MPI_FABRICS"], fabric)
            self.assertEqual(dict(made.environment).get("FI_PROVIDER"), provider)
        self.assertIn("left=10.0.0.1,right=10.0.0.2", there[0].launcher)
        self.assertFalse(contenders.by_default("oneccl ofi", ["all_reduce"]))
        self.assertTrue(contenders.by_default("oneccl", ["all_reduce"]))

    def test_a_floor_needs_ranks_that_its_two_workers_can_share(self):
        setting = contenders.Setting(3, pathlib.Path("nowhere"))
        present, absent = contenders.assemble(setting, None, ["floor direct"])
        self.assertEqual(present, [])
        self.assertIn("even number of ranks", absent["floor direct"])


if __name__ == "__main__":
    unittest.main()
