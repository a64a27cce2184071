#!/usr/bin/env python3
"""tools/tidy.py: the repository's rules that a machine can check. Exit code 0: all kept.

  tools/tidy.py                       every rule
  tools/tidy.py --rules layers,text   some of them; --list names them all
  tools/tidy.py --fix [PATH...]       formats these files, or all, with clang-format instead

Each rule is a function from a Tree to complaints. tests/tidy/tidy_test.py feeds each of them a
sample that it must reject. What a compiler or CMake already refuses is not repeated here.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

MAX_COLUMNS = 100
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_FILE_BYTES = 512 * 1024
CLANG_FORMAT_VERSION = "14"

# Which folders of src/ a folder of src/ may include from, besides itself.
LAYERS = {
    "base": set(),
    "topology": {"base"},
    "collectives": {"base", "topology"},
    "simulate": {"base", "topology", "collectives"},
    "transport": {"base"},
    "runtime": {"base", "topology", "collectives", "transport"},
    "nccl": {"base", "transport", "collectives", "runtime"},
    "cli": {"base", "topology", "collectives", "simulate", "transport", "runtime", "training"},
    "training": set(),
}

# Which folders of src/training/ a folder there may include from, besides itself.
TRAINING_LAYERS = {
    "tensor": set(),
    "files": set(),
    "architecture": {"tensor"},
    "ops": {"tensor"},
    "modules": {"architecture", "ops", "tensor"},
    "model": {"architecture", "files", "modules", "tensor"},
    "optim": {"tensor"},
    "plan": {"architecture", "tensor"},
    "data": {"architecture", "files", "tensor"},
    "report": {"files", "tensor"},
    "parallel": {"model", "modules", "optim", "plan", "tensor"},
    "engine": {"architecture", "model", "modules", "optim", "parallel", "plan", "tensor"},
    "trainer": {"architecture", "data", "engine", "files", "model", "modules", "optim", "parallel",
                "plan", "report", "tensor"},
}
# Below these a layer is the program without ranks: it sees values and errors of Tutti only.
TALKING = ("parallel", "engine", "trainer")
VALUES = ("tutti/status.hpp", "tutti/types.hpp", "tutti/numeric.hpp")

# Who speaks to Tutti as its users do: through public headers only.
CLIENTS = ("perf", "examples", "src/training")

# Which part a public header belongs to; those not named belong to base, which all may include.
PUBLIC_PARTS = {
    "topology.hpp": "topology",
    "schedule.hpp": "collectives",
    "transport.hpp": "transport",
    "communicator.hpp": "runtime",
    "stream.hpp": "runtime",
    "tutti.hpp": "runtime",
    "training.hpp": "training",
}

# Planning is pure: no thread, clock, socket or random number reaches it.
IMPURE = re.compile(
    r"\s*#\s*include\s*<(thread|mutex|shared_mutex|condition_variable|future|chrono|random"
    r"|unistd\.h|pthread\.h|time\.h|ctime|sys/[^>]*|netinet/[^>]*|arpa/[^>]*|poll\.h)>")
PURE_PARTS = ("src/collectives",)

CPP = (".hpp", ".cc", ".cu", ".cuh", ".h", ".c")
HEADERS = (".hpp", ".cuh", ".h")
# Compiled once per instruction set by its includer, never alone.
REPEATED = ("_inl.hpp",)
SCRIPTS = (".py", ".sh", ".cmake")
BINARY = (".png", ".gz", ".bin")


class Tree:
    """The files that a rule looks at: what git tracks or would track, texts read once."""

    # Samples may break rules: that is what they are for.
    LEFT_OUT = ("tests/data/", "LICENSE")

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self._texts = {}
        self.paths = sorted(path for path in self._list() if not path.startswith(self.LEFT_OUT))

    def _list(self):
        if (self.root / ".git").exists():
            listed = subprocess.run(
                ["git", "-C", str(self.root), "ls-files", "-z", "-co", "--exclude-standard"],
                check=True, capture_output=True, text=True).stdout.split("\0")
            return [path for path in listed if path and (self.root / path).is_file()]
        return [str(path.relative_to(self.root)) for path in self.root.rglob("*")
                if path.is_file() and "build" not in path.relative_to(self.root).parts[:1]]

    def text(self, path):
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_bytes().decode("utf-8", "replace")
        return self._texts[path]

    def ending(self, endings):
        return [path for path in self.paths if path.endswith(endings)]

    def code(self):
        """C++, scripts and build files."""
        return [path for path in self.paths if path.endswith(CPP + SCRIPTS)
                or path.endswith("CMakeLists.txt") or self.is_shell(path)]

    def is_shell(self, path):
        return "." not in os.path.basename(path) and self.text(path).startswith("#!")


def blank_out(text):
    """C++ with comments, string and character literals blanked; lines stay where they are."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]{0,16})\(.*?\)(?P=tag)"'
        r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)

    def blank(match):
        kept = '""' if match.group(0)[0] in '"R' else ""
        return kept + "\n" * match.group(0).count("\n")

    return pattern.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


# ---- rules ---------------------------------------------------------------------------------------


def part_of(path):
    """The layer of a file of src/ or include/tutti/, else None."""
    pieces = path.split("/")
    if pieces[0] == "src" and len(pieces) > 2:
        return pieces[1]
    if path.startswith("include/tutti/"):
        return PUBLIC_PARTS.get(path[len("include/tutti/"):], "base")
    return None


def why_not(path, included):
    """Why the file may not include "included", or None."""
    if ".." in included.split("/"):
        return "goes up with ../; name it from src/ or include/"
    public = included.startswith("tutti/")
    client = next((folder for folder in CLIENTS if path.startswith(folder + "/")), None)
    if path.startswith("src/training/"):
        return why_not_in_training(path.split("/")[2], included)
    if client:
        own = included.split("/")[0] in (client.split("/")[-1],) or "/" not in included
        return None if public or own else f"{client}/ may use public headers (tutti/...) only"
    if path.startswith("include/") and not public:
        return "public headers include public headers only"
    part = part_of(path)
    if part not in LAYERS or (not public and "/" not in included):
        return None
    target = part_of("include/" + included) if public else included.split("/")[0]
    if target == part or target in LAYERS[part] or target not in LAYERS:
        return None
    may = ", ".join(sorted(LAYERS[part])) or "no other part"
    return f"{part} may not look into {target} (it may use: {may})"


def why_not_in_training(layer, included):
    """The same among the folders of the training layer."""
    if included.startswith("tutti/"):
        silent = layer not in TALKING and included not in VALUES
        return f"{layer} talks to no ranks; only {', '.join(TALKING)} do" if silent else None
    pieces = included.split("/")
    if pieces[0] != "training":
        own = pieces[0] not in LAYERS
        return None if own else "src/training/ may use public headers (tutti/...) only"
    if layer not in TRAINING_LAYERS:
        return f"src/training/{layer} is not in the table of layers"
    if pieces[1] == layer or pieces[1] in TRAINING_LAYERS[layer]:
        return None
    return f"{layer} may not look into {pieces[1]}"


def check_layers(tree):
    for path in tree.ending(CPP):
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            quoted = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            reason = quoted and why_not(path, quoted.group(1))
            if reason:
                yield path, number, f'includes "{quoted.group(1)}": {reason}'
            if path.startswith(PURE_PARTS) and IMPURE.match(line):
                yield path, number, f"{line.strip()}: planning is pure (no threads, clocks, I/O)"
    for path in tree.ending("CMakeLists.txt"):
        part = part_of(path)
        uses = re.search(r"tutti_add_part\(\s*\w+[^)]*?\bUSES\s+([a-z\s]+)", tree.text(path))
        for used in uses.group(1).split() if uses and part in LAYERS else []:
            if used not in LAYERS[part]:
                yield path, 1, f"{part} may not use {used}"


def opens_with_comment(path, text):
    if text.startswith("#!"):
        text = text.split("\n", 1)[-1]
    if path.endswith(CPP):
        return text.startswith(("//", "/*"))
    return text.startswith(("#", '"""'))


def check_opening(tree):
    for path in tree.code():
        if not opens_with_comment(path, tree.text(path)):
            yield path, 1, "does not open with a comment that says why the file exists"
    for path in tree.ending((".hpp", ".cuh")):
        if path.endswith(REPEATED):
            continue
        first = re.search(r"^\s*#.*$", blank_out(tree.text(path)), re.MULTILINE)
        if not first or first.group(0).split() != ["#pragma", "once"]:
            yield path, 1, "its first directive is not #pragma once"


def check_goto(tree):
    for path in tree.ending(CPP):
        text = blank_out(tree.text(path))
        for match in re.finditer(r"\bgoto\b", text):
            yield path, line_of(text, match.start()), "goto"


# Settings are read in one place, told of in --help, and refused where they are unknown. These
# read what belongs to others.
READS_ENVIRONMENT = (
    "src/runtime/gpu/host/cuda_device.cc",  # CUDA's
    "src/training/data/corpus.cc",          # where caches are
    "src/transport/ucx/library.cc",         # UCX's
    "src/transport/ucx/worker.cc",
)


def check_environment(tree):
    for path in tree.ending(CPP):
        if not path.startswith("src/") or path in READS_ENVIRONMENT:
            continue
        text = blank_out(tree.text(path))
        for match in re.finditer(r"\b(secure_)?getenv\b", text):
            yield path, line_of(text, match.start()), "getenv; settings are base/config.hpp's"


def check_length(tree):
    for path in tree.code():
        lines = tree.text(path).splitlines()
        if len(lines) > MAX_FILE_LINES:
            yield path, len(lines), f"{len(lines)} lines; a file has at most {MAX_FILE_LINES}"
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS and "http" not in line:
                yield path, number, f"{len(line)} columns; a line has at most {MAX_COLUMNS}"


def functions(text):
    """(first line, lines) of each function with a body, told by where its brace opens.

    Good for formatted code, which `check_format` sees to.
    """
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"),
                  blank_out(text), flags=re.MULTILINE)
    stack, start, before, opened = [], 0, "", 0
    for match in re.finditer(r"[{};]", text):
        token, inside = match.group(0), "function" in stack
        if token == "{":
            opens = not inside and is_function(text[start:match.start()], before)
            stack.append("function" if opens else "block")
            opened = line_of(text, match.start()) if opens else opened
        elif token == "}" and stack and stack.pop() == "function":
            yield opened, line_of(text, match.start()) - opened + 1
        start, before = match.end(), token


def is_function(statement, before):
    """Whether a brace after this statement, outside functions, opens a function's body."""
    if not statement.strip():
        return before == "}"  # after a member initialiser: Type() : member_{1} {
    while re.search(r"\([^()]*\)", statement):
        statement = re.sub(r"\([^()]*\)", " <call> ", statement)
    return bool(re.search(
        r"<call>(\s|const\b|noexcept\b|override\b|final\b|mutable\b|<call>|&|(->|requires\b).*)*$",
        statement, re.DOTALL))


def check_functions(tree):
    for path in tree.ending(CPP):
        for number, lines in functions(tree.text(path)):
            if lines > MAX_FUNCTION_LINES:
                yield path, number, f"a function of {lines} lines; at most {MAX_FUNCTION_LINES}"


# A reader elsewhere can make nothing of these.
FOREIGN = (
    (re.compile(r"(?<![\w./-])/(home|Users|work|workspace)/\w"), "a path of one machine"),
    (re.compile(r"\bissues?\s*#?\s?\d+\b", re.IGNORECASE), "a ticket number; give the reason"),
    (re.compile(r"\bshared/(data|facts|tools|hooks|\w+\.md)"), "a folder outside the repository"),
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "unfinished; finish it or say plainly what is missing"),
)
# Continuous integration is told here where recorded machines are; this file names the patterns.
FOREIGN_EXEMPT = (".ci/run", "tools/tidy.py", "tests/tidy/tidy_test.py")


def check_foreign(tree):
    for path in tree.paths:
        if path in FOREIGN_EXEMPT or path.endswith(BINARY):
            continue
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            for pattern, what in FOREIGN:
                if pattern.search(line):
                    yield path, number, f"{what}: {pattern.search(line).group(0)}"


def check_whitespace(tree):
    for path in tree.paths:
        if path.endswith(BINARY) or "/golden/" in path:
            continue
        text = tree.text(path)
        if text and not text.endswith("\n"):
            yield path, line_of(text, len(text)), "no newline at the end of the file"
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip():
                yield path, number, "white space at the end of the line"
            if "\t" in line and path.endswith(CPP + SCRIPTS):
                yield path, number, "a tab"


def check_size(tree):
    for path in tree.paths:
        size = (tree.root / path).stat().st_size
        if size > MAX_FILE_BYTES:
            yield path, 1, f"{size} bytes; a file has at most {MAX_FILE_BYTES}"


def check_format(tree):
    formatter = clang_format()
    if not formatter:
        yield ".clang-format", 1, f"clang-format {CLANG_FORMAT_VERSION} is missing: run tools/setup"
        return
    paths = tree.ending(CPP)
    batches = [paths[start:start + 16] for start in range(0, len(paths), 16)]

    def run(batch):
        return subprocess.run([formatter, "--dry-run", "--Werror", *batch], cwd=tree.root,
                              capture_output=True, text=True).stderr

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for output in pool.map(run, batches):
            first = {}
            for found in re.finditer(r"^(\S+?):(\d+):\d+: (?:error|warning):", output, re.M):
                first.setdefault(found.group(1), int(found.group(2)))
            for path, number in first.items():
                yield path, number, f"not formatted; run tools/tidy.py --fix {path}"


def clang_format():
    for name in (f"clang-format-{CLANG_FORMAT_VERSION}", "clang-format"):
        path = shutil.which(name)
        if path and f"version {CLANG_FORMAT_VERSION}." in subprocess.run(
                [path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


def check_headers(tree, compiler="g++", cache=None):
    """Every header compiles alone. With a cache folder, only those that changed since."""
    headers = [path for path in tree.ending(HEADERS) if not path.endswith(REPEATED)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, output in pool.map(lambda path: compile_alone(tree, path, compiler, cache),
                                     headers):
            if output:
                yield path, 1, f"does not compile alone:\n{output}"


def compile_alone(tree, path, compiler, cache):
    language = ["-x", "c", "-std=c99"] if path.endswith(".h") else ["-x", "c++", "-std=c++20"]
    options = [*language, "-Wall", "-Wextra", "-Iinclude", "-Isrc", "-I.", "-Itests"]
    text = f'#include "{path}"\n'
    if not cache:
        done = subprocess.run([compiler, *options, "-fsyntax-only", "-"], input=text, cwd=tree.root,
                              capture_output=True, text=True)
        return path, complaint_of(done)
    place = pathlib.Path(cache).resolve() / path.replace("/", "__")
    depends, source, made = (f"{place}{end}" for end in (".d", ".including", ".o"))
    if up_to_date(tree, pathlib.Path(depends)):
        return path, ""
    pathlib.Path(source).write_text(text)
    # What another clone has compiled, ccache knows, but only of what makes an object.
    launcher = ["ccache"] if shutil.which("ccache") else []
    done = subprocess.run(
        [*launcher, compiler, *options, "-MMD", "-MT", "header", "-MF", f"{depends}.new", "-c",
         "-o", made, os.path.relpath(source, tree.root)], cwd=tree.root, capture_output=True,
        text=True)
    if done.returncode == 0:
        os.replace(f"{depends}.new", depends)
        os.remove(made)
    return path, complaint_of(done)


def complaint_of(done):
    return "" if done.returncode == 0 else "\n".join(done.stderr.splitlines()[:8])


def up_to_date(tree, depends):
    try:
        checked = depends.stat().st_mtime
        names = depends.read_text().replace("\\\n", " ").split(":", 1)[1].split()
        return all((tree.root / name).stat().st_mtime < checked for name in names)
    except (OSError, IndexError):
        return False


RULES = {
    "layers": check_layers,
    "opening": check_opening,
    "goto": check_goto,
    "environment": check_environment,
    "length": check_length,
    "functions": check_functions,
    "foreign": check_foreign,
    "whitespace": check_whitespace,
    "size": check_size,
    "format": check_format,
    "headers": check_headers,
}


def fix(paths):
    formatter = clang_format()
    if not formatter:
        sys.exit(f"clang-format {CLANG_FORMAT_VERSION} is missing: run tools/setup")
    subprocess.run([formatter, "-i", *[path for path in paths if path.endswith(CPP)]], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--rules", default=",".join(RULES))
    parser.add_argument("--compiler", default="g++", help="for the rule `headers`")
    parser.add_argument("--cache", help="folder where `headers` notes what it has compiled")
    parser.add_argument("--list", action="store_true", help="name the rules and stop")
    parser.add_argument("--fix", nargs="*", metavar="PATH")
    options = parser.parse_args()
    if options.list:
        print("\n".join(RULES))
        return 0
    if options.fix is not None:
        fix(options.fix or Tree(options.root).paths)
        return 0
    unknown = set(options.rules.split(",")) - set(RULES)
    if unknown:
        parser.error(f"no such rule: {', '.join(sorted(unknown))}; there are {', '.join(RULES)}")
    if options.cache:
        pathlib.Path(options.cache).mkdir(parents=True, exist_ok=True)
    tree = Tree(options.root)
    complaints = 0
    for name in options.rules.split(","):
        more = {"compiler": options.compiler, "cache": options.cache} if name == "headers" else {}
        for path, number, message in RULES[name](tree, **more):
            complaints += 1
            print(f"{path}:{number}: [{name}] {message}")
    print(f"{len(tree.paths)} files, {complaints} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
