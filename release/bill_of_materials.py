"""The packages that an installed wheel brings, as a CycloneDX file (SBOM)."""

import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from provenance import BuildInput

PROJECT = "assay-eval"
EXTRAS = ("view",)
"""The extras that the check of the wheel installs: their packages are listed as optional."""


def write_bill_of_materials(
    wheel: Path, environment: Path, out: Path, *, source: BuildInput
) -> None:
    """Write the bill of the environment that the wheel was installed into."""
    (packages,) = environment.glob("lib/python*/site-packages")
    digest = sha256(wheel.read_bytes()).hexdigest()
    bill = describe(distributions(path=[str(packages)]), digest=digest, source=source)
    out.write_text(json.dumps(bill, indent=2) + "\n", "utf-8")


def describe(
    installed: Iterable[Distribution], *, digest: str, source: BuildInput
) -> dict[str, Any]:
    """Return the bill. The same packages, wheel and commit give the same bytes."""
    packages = {str(canonicalize_name(each.name)): each for each in installed}
    required, graph = walk(packages, ()), walk(packages, EXTRAS)
    components = [
        describe_component(packages[name])
        | {"scope": "required" if name in required else "optional"}
        for name in sorted(graph)
        if name != PROJECT
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'{PROJECT} {digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": f"{datetime.fromtimestamp(source.epoch, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "component": describe_component(packages[PROJECT])
            | {"type": "application", "hashes": [{"alg": "SHA-256", "content": digest}]},
        },
        "components": components,
        "dependencies": [
            {
                "ref": package_url(packages[name]),
                "dependsOn": [package_url(packages[each]) for each in sorted(graph[name])],
            }
            for name in sorted(graph)
        ],
    }


def walk(packages: Mapping[str, Distribution], extras: Iterable[str]) -> dict[str, set[str]]:
    """Return what the project with `extras` brings, and what each of these packages needs."""
    graph: dict[str, set[str]] = {}
    queue, seen = [(PROJECT, frozenset(extras))], set()
    while queue:
        name, chosen = queue.pop()
        if name not in packages or (name, chosen) in seen:
            continue
        seen.add((name, chosen))
        needs = [
            (str(canonicalize_name(each.name)), frozenset(each.extras))
            for each in map(Requirement, packages[name].requires or ())
            if each.marker is None
            or any(each.marker.evaluate({"extra": extra}) for extra in ("", *chosen))
        ]
        graph.setdefault(name, set()).update(each for each, _ in needs if each in packages)
        queue += needs
    return graph


def describe_component(package: Distribution) -> dict[str, Any]:
    url = package_url(package)
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": url,
        "name": package.name,
        "version": package.version,
        "purl": url,
    }
    # An older `License` may be a whole text: only an SPDX expression is a name.
    if "License-Expression" in package.metadata:
        component["licenses"] = [{"expression": package.metadata["License-Expression"]}]
    return component


def package_url(package: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(package.name)}@{package.version}"
