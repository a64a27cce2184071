#!/usr/bin/env python3
"""Tests of tools/tidy.py: every rule accepts a small good tree and rejects each of its bad samples.

A rule without a bad sample is itself a failure: a check that cannot fail proves nothing.
"""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import tidy  # noqa: E402

TOP = "// Why this file exists.\n"
HEADER = TOP + "#pragma once\n"

# A tree that keeps every rule, with the cases that a careless rule would stumble over.
GOOD = {
    "include/tutti/status.hpp": HEADER + "namespace tutti {\nenum class Code { ok };\n}\n",
    "include/tutti/communicator.hpp": HEADER + '#include "tutti/status.hpp"\n',
    "src/base/text.hpp": HEADER + '#include "tutti/status.hpp"\n',
    "src/base/text.cc": TOP + '#include "base/text.hpp"\nint text() { return 1\'000; }\n'
                        'const char* kWord = "goto";  // no goto here\n',
    "src/base/twice_inl.hpp": TOP + "#if 0\n#endif\nint of_its_includer() { return kUnknown; }\n",
    "src/base/CMakeLists.txt": "# Ground floor.\ntutti_add_part(base LINKS fmt::fmt)\n",
    "src/topology/CMakeLists.txt": "# Machines.\ntutti_add_part(topology USES base LINKS a::b)\n",
    "src/runtime/run.cc": TOP + '#include <chrono>\n\n#include "collectives/plan.hpp"\n'
                          '#include "transport/wire.hpp"\n#include "tutti/communicator.hpp"\n',
    "src/cli/main.cc": TOP + '#include "runtime/run.hpp"\nint main() { return 0; }\n',
    "src/training/ops/add.cc": TOP + '#include "hwy/highway.h"\n#include "training/tensor/t.hpp"\n',
    "src/training/parallel/dp.cc": TOP + '#include "tutti/communicator.hpp"\n',
    "perf/all_reduce_perf.cc": TOP + '#include "perf/table.hpp"\n#include "tutti/status.hpp"\n',
    ".ci/run": "#!/bin/sh\n# Runs the tests.\nls ../shared/data\n",
    "README.md": "# A tree\n",
}

LONG = "".join(f"  x += {i};\n" for i in range(tidy.MAX_FUNCTION_LINES))


def in_function(head):
    return TOP + head + " {\n" + LONG + "}\n"


# (rule, path, text, words that the complaint must have)
BAD = [
    ("layers", "src/base/a.hpp", '#include "topology/b.hpp"\n', "base may not look into topology"),
    ("layers", "src/topology/a.cc", '#include "collectives/b.hpp"\n', "collectives"),
    ("layers", "src/collectives/a.cc", '#include "transport/b.hpp"\n', "transport"),
    ("layers", "src/collectives/ring/a.cc", '#include "runtime/b.hpp"\n', "runtime"),
    ("layers", "src/collectives/a.cc", '#include "tutti/transport.hpp"\n', "transport"),
    ("layers", "src/collectives/a.cc", "#include <thread>\n", "planning is pure"),
    ("layers", "src/collectives/a.cc", "  #  include <sys/socket.h>\n", "planning is pure"),
    ("layers", "src/simulate/a.cc", '#include "runtime/b.hpp"\n', "runtime"),
    ("layers", "src/transport/tcp/a.cc", '#include "topology/b.hpp"\n', "topology"),
    ("layers", "src/transport/tcp/a.cc", '#include "tutti/topology.hpp"\n', "topology"),
    ("layers", "src/transport/tcp/a.cc", '#include "collectives/b.hpp"\n', "collectives"),
    ("layers", "src/runtime/a.cc", '#include "nccl/b.hpp"\n', "nccl"),
    ("layers", "src/runtime/a.cc", '#include "cli/b.hpp"\n', "cli"),
    ("layers", "src/nccl/a.cc", '#include "topology/b.hpp"\n', "topology"),
    ("layers", "src/training/a.cc", '#include "runtime/b.hpp"\n', "public headers"),
    ("layers", "src/training/ops/a.cc", '#include "training/modules/b.hpp"\n', "may not look into"),
    ("layers", "src/training/model/a.cc", '#include "tutti/communicator.hpp"\n', "to no ranks"),
    ("layers", "src/training/other/a.cc", '#include "training/ops/b.hpp"\n', "table of layers"),
    ("layers", "src/base/a.cc", '#include "../topology/b.hpp"\n', "goes up"),
    ("layers", "include/tutti/a.hpp", '#include "base/b.hpp"\n', "public headers"),
    ("layers", "include/tutti/topology.hpp", '#include "tutti/communicator.hpp"\n', "runtime"),
    ("layers", "perf/a.cc", '#include "runtime/b.hpp"\n', "public headers"),
    ("layers", "examples/a.cc", '#include "base/b.hpp"\n', "public headers"),
    ("layers", "src/base/CMakeLists.txt", "tutti_add_part(base USES runtime)\n", "runtime"),
    ("layers", "src/transport/CMakeLists.txt",
     "tutti_add_part(transport\n  USES base collectives LINKS a)\n", "collectives"),
    ("opening", "src/base/a.cc", "int x;\n", "comment"),
    ("opening", "src/base/a.hpp", "#pragma once\n// Late.\n", "comment"),
    ("opening", "src/base/a.hpp", TOP + "#ifndef A\n#define A\n#endif\n", "#pragma once"),
    ("opening", "tools/a", "#!/bin/sh\nls\n", "comment"),
    ("opening", "cmake/A.cmake", "set(a b)\n", "comment"),
    ("goto", "src/base/a.cc", TOP + "void f() {\n  goto end;\nend:;\n}\n", "goto"),
    ("environment", "src/base/a.cc", TOP + 'const char* a = std::getenv("A");\n', "getenv"),
    ("length", "src/base/a.cc", "//\n" * (tidy.MAX_FILE_LINES + 1), "lines"),
    ("length", "src/base/a.cc", "// " + "x" * tidy.MAX_COLUMNS + "\n", "columns"),
    ("length", "tools/a.py", "# " + "x" * tidy.MAX_COLUMNS + "\n", "columns"),
    ("functions", "src/base/a.cc", in_function("int f()"), "a function of 72 lines"),
    ("functions", "src/base/a.cc", in_function("template <class T>\nauto f(T x) -> int"), "72"),
    ("functions", "src/base/a.cc", in_function("A::A(int x) : x_(x), y_{1}"), "72"),
    ("functions", "src/base/a.cc", in_function("bool A::operator==(const A& a) const"), "72"),
    ("functions", "src/base/a.cc", TOP + "namespace n {\nclass A {\n  void f() noexcept {\n" + LONG
     + "  }\n};\n}\n", "72"),
    ("functions", "tests/unit/base/a.cc", in_function("TEST(Area, does_it)"), "72"),
    ("foreign", "docs/a.md", "See /home/somebody/notes.\n", "a path of one machine"),
    ("foreign", "src/base/a.cc", "// Asked for in issue #12.\n", "a ticket number"),
    ("foreign", "tools/a", "ls ../shared/data\n", "outside the repository"),
    ("foreign", "src/base/a.cc", "// TODO: the rest\n", "unfinished"),
    ("whitespace", "src/base/a.cc", "int x; \n", "white space"),
    ("whitespace", "src/base/a.cc", "int x;\r\n", "white space"),
    ("whitespace", "src/base/a.cc", "int x;", "no newline"),
    ("whitespace", "src/base/a.cc", "\tint x;\n", "a tab"),
    ("size", "docs/a.bin", "x" * (tidy.MAX_FILE_BYTES + 1), "bytes"),
    ("format", "src/base/a.cc", "int  x ;\n", "not formatted"),
    ("headers", "src/base/a.hpp", HEADER + "inline std::string a() { return {}; }\n", "alone"),
    ("headers", "include/tutti/a.h", TOP + "typedef bool a;\n", "alone"),
]


def complaints(rule, files):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = pathlib.Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, newline="")
        pathlib.Path(folder, ".clang-format").write_text((ROOT / ".clang-format").read_text())
        return [f"{path}: {message}" for path, _, message in tidy.RULES[rule](tidy.Tree(folder))]


class Rules(unittest.TestCase):
    def test_accept_a_good_tree(self):
        for rule in tidy.RULES:
            files = dict(GOOD)
            if rule == "format":  # of one file, so that the rest can stay on one line each
                files = {"src/base/text.cc": TOP + "int text() { return 1; }\n"}
            with self.subTest(rule):
                self.assertEqual(complaints(rule, files), [])

    def test_reject_bad_samples(self):
        for rule, path, text, words in BAD:
            with self.subTest(rule=rule, path=path, text=text[:60]):
                found = complaints(rule, {path: text})
                self.assertTrue(any(path in line and words in line for line in found), found)

    def test_each_rule_has_a_bad_sample(self):
        self.assertEqual({rule for rule, *_ in BAD}, set(tidy.RULES))

    def test_each_rule_is_a_test_of_the_build(self):
        listed = (ROOT / "tests/tidy/CMakeLists.txt").read_text()
        for rule in tidy.RULES:
            self.assertRegex(listed, rf"\b{rule}\b")

    def test_header_is_compiled_again_when_what_it_includes_changes(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
            lower, upper = pathlib.Path(folder, "lower.hpp"), pathlib.Path(folder, "upper.hpp")
            lower.write_text(HEADER + "using Number = int;\n")
            upper.write_text(HEADER + '#include "lower.hpp"\ninline Number one() { return 1; }\n')
            check = lambda: list(tidy.check_headers(tidy.Tree(folder), cache=cache))
            self.assertEqual(check(), [])
            lower.write_text(HEADER)
            self.assertEqual([path for path, *_ in check()], ["upper.hpp"])


if __name__ == "__main__":
    unittest.main()
