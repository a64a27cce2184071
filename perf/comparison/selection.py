"""Command line arguments that say what is measured, shared by perf/compare and perf/floor."""
import argparse
import pathlib
import re

import builds

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
TYPES = ("f32", "bf16", "f16")


def parse_size(text):
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip(), re.IGNORECASE)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 8, 64K or 1M")
    size = int(found.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[found.group(2).upper()]
    if size == 0 or size % 4:
        raise argparse.ArgumentTypeError(f"'{text}' is not a multiple of 4 bytes above 0")
    return size


def parse_sizes(text):
    return sorted({parse_size(part) for part in text.split(",")})


def names_from(known):
    """A parser of some of the known names, or all of them, in the known order."""
    def parse(text):
        asked = {part.strip() for part in text.split(",")}
        unknown = asked - {"all", *known}
        if unknown:
            raise argparse.ArgumentTypeError(
                f"'{', '.join(sorted(unknown))}' is none of {', '.join(known)}")
        return [name for name in known if name in asked or "all" in asked]
    return parse


def add_arguments(parser, sizes):
    parser.add_argument("--operations", type=names_from(OPERATIONS), metavar="NAME,...",
                        help=f"of {', '.join(OPERATIONS)}")
    parser.add_argument("--types", type=names_from(TYPES), metavar="NAME,...",
                        help="of f32, bf16, f16; default f32")
    parser.add_argument("--sizes", type=parse_sizes, metavar="BYTES,...",
                        help=f"default {sizes}")
    parser.add_argument("--ranks", type=int, default=2, help="default 2")
    parser.add_argument("--build", type=pathlib.Path, default=builds.ROOT / "build" / "release",
                        metavar="FOLDER", help="Tutti's build folder; default build/release")
