"""Whether the environment of this interpreter holds what an extra of the project needs, with all
that it depends on. Needs nothing but `packaging`; exit 1 and one line each for what is amiss.

usage: check_requirements.py PYPROJECT EXTRA [--alone REQUIREMENT]... [--without NAME]...
"""

import argparse
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def roots(pyproject: Path, extra: str) -> list[Requirement]:
    """The project's own requirements and those of one extra. KeyError: no such extra."""
    project = tomllib.loads(pyproject.read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"][extra]]
    return [Requirement(line) for line in lines]


def children(requirement: Requirement) -> list[Requirement]:
    """What an installed distribution asks for on this machine, by the extras asked of it."""
    extras = ["", *requirement.extras]
    found = [Requirement(line) for line in distribution(requirement.name).requires or []]
    return [
        child
        for child in found
        if child.marker is None or any(child.marker.evaluate({"extra": e}) for e in extras)
    ]


def fault_of(requirement: Requirement) -> str | None:
    try:
        version = distribution(requirement.name).version
    except PackageNotFoundError:
        return f"{requirement} is missing"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} {version} is not {requirement.specifier}"


def faults(requirements: Iterable[Requirement], without: frozenset[str]) -> Iterator[str]:
    """What is missing or of a wrong version, dependencies of dependencies included.

    `without` names distributions that must be absent, whoever asks for them.
    """
    pending = list(requirements)
    seen: set[str] = set()
    while pending:
        requirement = pending.pop()
        if str(requirement) in seen or canonicalize_name(requirement.name) in without:
            continue
        seen.add(str(requirement))
        if fault := fault_of(requirement):
            yield fault
        else:
            pending += children(requirement)
    for name in sorted(without):
        try:
            distribution(name)
        except PackageNotFoundError:
            continue
        yield f"{name} is installed and must not be"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pyproject", type=Path)
    parser.add_argument("extra")
    parser.add_argument("--alone", action="append", default=[], help="without its dependencies")
    parser.add_argument("--without", action="append", default=[])
    arguments = parser.parse_args()
    requirements = roots(arguments.pyproject, arguments.extra)
    without = frozenset(canonicalize_name(name) for name in arguments.without)
    found = list(faults(requirements, without))
    found += filter(None, (fault_of(Requirement(line)) for line in arguments.alone))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
