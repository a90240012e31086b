"""wheels [SYSTEM ...]: the wheel of each system, built and checked on one Linux machine.

Installs what it needs into .venv-wheels, compiles into target/wheels and puts the wheels into
dist/wheels. Ends with 1 if a wheel fails the check against its platform tag.

With --platforms it builds nothing: it reads what TensorFlow's own wheels export and writes the
tables of docs/PLATFORMS.md. That downloads some 13 GB, one wheel at a time, of which a few MiB of
names are kept in target/wheels-cache.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import environment
from systems import SYSTEMS, by_name

ROOT = Path(__file__).parents[2]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wheels", description=__doc__.split("\n\n")[0])
    names = [system.name for system in SYSTEMS]
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=", ".join(names))
    parser.add_argument("--profile", default="release", help="cargo's profile")
    parser.add_argument("--output", type=Path, default=ROOT / "dist/wheels")
    parser.add_argument("--platforms", action="store_true", help="write docs/PLATFORMS.md instead")
    parser.add_argument("--cache", type=Path, default=ROOT / "target/wheels-cache")
    options = parser.parse_args()
    options.systems = options.systems or names
    if unknown := set(options.systems) - set(names):
        parser.error(f"no system {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def main() -> int:
    """Runs it."""
    options = arguments()
    environment.enter()
    # These modules need the packages of the environment.
    import build
    import check
    import page

    systems = [by_name(name) for name in options.systems]
    if options.platforms:
        page.write(ROOT / "docs/PLATFORMS.md", options.cache, systems)
        return 0
    bad = []
    for system in systems:
        start = time.monotonic()
        wheel = build.build(system, options.profile, options.output)
        report = check.check(wheel, audited=True)
        print(f"{system.name}: built in {time.monotonic() - start:.0f} s")
        lines = [*report.facts, *(f"WRONG: {problem}" for problem in report.problems)]
        print("\n".join(f"  {line}" for line in lines), flush=True)
        bad += [system.name] if report.problems else []
    if bad:
        print(f"wheels: not as promised: {', '.join(bad)}", file=sys.stderr)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
