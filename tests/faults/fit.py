"""Fits `rounddiag/findings/causes.csv`, and measures how it transfers.

    python -m tests.faults.fit                  diagnose the batches of the cache, fit
    python -m tests.faults.fit --other FOLDER   and those of a second bench
    python -m tests.faults.fit --again          fit on what the last call has kept

Prints what a table fitted on each bench reaches on the others, by family, and writes
the table that is fitted on both.

A batch counts if the first finding is named from its looks: exact values and fitted
effects name themselves. `expected.csv` has, for each cause, what it is expected to do
to each measure before any batch is seen (in pseudo-counts, from how the fault works and
from what threads report), in how many independent threads people report it, and in how
many incidents images were seen or not. Counts of a bench add to what is expected; a
fault of many batches counts as `CAP`, so that no bench decides by its size. Threads and
incidents alone make the priors: a bench says nothing of how often a cause is. The
weights of the measures maximise the likelihood of the true causes, with tables that
lack the agent they are asked about.

Right first, of faults named from their looks, with the agents `dense-tune-0`,
`vision-tune-0`, `vision-test-0` and half of the faults of `moe-tune-0`: fitted here,
66 % on a bench of three other models (83 batches) and 73 % on `vllm` (30); fitted
there, 67 % here (323) and 67 % on `vllm`; fitted on both, 70 % on `vllm`. `CAP`,
`STIFFNESS` and the pseudo-counts were varied by factors of 2.5 to 5; the figures change
by 3 %.

`--other` names a bench with `truth.json` (cause, also_acceptable, severity, model,
variant) and its batches in `data`. The batches of `vllm` are never fitted on.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize
from tqdm.auto import tqdm

import rounddiag as rd
from rounddiag.findings.causes import CAUSES, family
from tests.faults import vllm_bench
from tests.faults.cases import cases
from tests.faults.severity import BANDS
from tests.faults.store import CACHE
from tests.faults.truth import alike

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
TABLE = Path(rd.__file__).parent / "findings" / "causes.csv"
KEPT = CACHE / "looks.json"
# Batches that one fault of a bench counts as, at most.
CAP = 1.0
# Pseudo-counts of what all faults do, in the expectation of each cause. Few where a
# value rules a cause out: which samples differ, and where along a sample.
SHRINK, SHRINK_PLACES = 2.0, 0.1
# The weights of measures stay near this one unless the likelihood says otherwise.
USUAL_WEIGHT, STIFFNESS = 0.7, 2.0
FACTORS = np.arange(0.6, 3.01, 0.1)
FITTED = ("ours", "other")
SURE = 0.9
# Incidents that the share of all with images, one in three, adds to those of a cause.
INCIDENTS, WITH_IMAGES = 18.0, 1 / 3
IMPOSSIBLE = -99.0  # points of a cause of images where there are none


@dataclass(frozen=True)
class Look:
    """What a batch looks like, and the causes that are right."""

    bench: str
    agent: str
    fault: str
    severity: str
    cause: str
    right: list[str]
    looks: dict[str, str]
    has_images: bool


@dataclass(frozen=True)
class Model:
    """Log-likelihoods [cause, value] of each measure, weights, priors by images."""

    causes: list[str]
    measures: dict[str, dict[str, Any]]
    weights: dict[str, float]
    prior: dict[bool, Any]

    def sharpen(self, factor: float) -> Model:
        """Return the model with all weights multiplied."""
        weights = {name: factor * one for name, one in self.weights.items()}
        return replace(self, weights=weights)

    def points(self, look: Look) -> Any:
        """Return the points of each cause."""
        found = self.weights["threads"] * self.prior[look.has_images]
        for measure, value in look.looks.items():
            if value in self.measures.get(measure, {}):
                found = found + self.weights[measure] * self.measures[measure][value]
        return found

    def rank(self, look: Look) -> tuple[list[str], Any]:
        """Return causes and their probabilities, best first."""
        points = self.points(look)
        chance = np.exp(points - points.max())
        order = np.argsort(-chance, kind="stable")
        return [self.causes[i] for i in order], (chance / chance.sum())[order]


def collect(other: Path | None) -> list[Look]:
    """Diagnose the faults of all benches."""
    found: list[Look] = []
    threads, _ = read_expected()
    every = chain(cases("tune"), cases("test"), vllm_bench.load())
    for case in tqdm(every, "diagnose"):
        is_odd = len(case.causes) > 1 or "/card." in case.name
        if is_odd or case.causes == ("healthy",):
            continue
        agent, fault = case.name.split("/")
        fault = fault.split(".")[0]
        bench = "vllm" if "-vllm-" in agent else "ours"
        (cause,) = case.causes
        if cause not in threads:
            continue
        right = [
            one
            for one in CAUSES
            if one == cause or alike(cause, one, fault, case.columns)
        ]
        seen = rd.diagnose(case.batch(), **case.arguments())
        found += _look(seen, bench, agent, fault, case.severity, cause, right)
    if other is not None:
        for one in tqdm(json.loads((other / "truth.json").read_text()), "other"):
            cause = one["cause"]
            if cause not in threads:
                continue
            right = [cause, *one["also_acceptable"]]
            seen = rd.diagnose(rd.load(other / "data" / one["case"]))
            fault, severity = f"{cause}.{one['variant']}", one["severity"]
            found += _look(seen, "other", one["model"], fault, severity, cause, right)
    return found


def _look(
    seen: Any, bench: str, agent: str, fault: str, severity: str, *truth: Any
) -> Iterator[Look]:
    if len(seen) and seen[0].looks and severity in BANDS:
        cause, right = truth
        looks, has_images = dict(seen[0].looks), seen[0].view.has_images
        yield Look(bench, agent, fault, severity, cause, right, looks, has_images)


def read_expected() -> tuple[dict[str, float], dict[tuple[str, str], dict[str, float]]]:
    """Return the number of threads of each cause, and what each is expected to do."""
    threads: dict[str, float] = {}
    expected: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    with (HERE / "expected.csv").open() as file:
        for row in csv.DictReader(file):
            if row["measure"] == "threads":
                threads[row["cause"]] = float(row["weight"])
            else:
                key = (row["cause"], row["measure"])
                expected[key][row["value"]] = float(row["weight"])
    return threads, expected


def fit(looks: Sequence[Look]) -> Model:
    """Fit the table, and the weights of its measures."""
    agents = sorted({(one.bench, one.agent) for one in looks})
    parts = []
    for agent in agents:
        rest = [one for one in looks if (one.bench, one.agent) != agent]
        mine = [one for one in looks if (one.bench, one.agent) == agent]
        parts.append((_count(rest or looks), mine))
    model = _count(looks)
    names = [*model.measures, "threads"]
    share = Counter((one.bench, one.fault) for one in looks)
    terms, right, weight = [], [], []
    nothing = np.zeros(len(model.causes))
    for table, mine in parts:
        for one in mine:
            rows = [
                table.measures[name].get(one.looks.get(name, ""), nothing)
                for name in model.measures
            ]
            terms.append(np.array([*rows, table.prior[one.has_images]]))
            right.append([c in one.right for c in model.causes])
            weight.append(min(1.0, CAP / share[one.bench, one.fault]))
    values = np.array(terms)
    truth, size = np.array(right), np.array(weight)

    def loss(weights: Any) -> float:
        points = np.einsum("imc,m->ic", values, weights)
        chance = np.exp(points - points.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        fits = np.log((chance * truth).sum(axis=1) + 1e-4)
        stiff = STIFFNESS * ((weights - USUAL_WEIGHT) ** 2).sum()
        return float(stiff - (size * fits).sum())

    start = np.full(len(names), USUAL_WEIGHT)
    best = minimize(loss, start, bounds=[(0.1, 2)] * len(names), method="L-BFGS-B")
    weights = dict(zip(names, map(float, best.x), strict=True))
    return Model(model.causes, model.measures, weights, model.prior)


def _count(looks: Sequence[Look]) -> Model:
    """Return the log-likelihoods of a table, with all weights 1."""
    threads, expected = read_expected()
    causes = [*threads, "unknown"]
    share = Counter((one.bench, one.fault) for one in looks)
    counts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    seen = {cause: expected.pop((cause, "images"), {}) for cause in causes}
    for (_, measure), known in expected.items():
        counts[measure].update({("", value): 0 for value in known})
    for one in looks:
        part = min(1.0, CAP / share[one.bench, one.fault])
        for measure, value in one.looks.items():
            if value != "unknown":
                counts[measure][one.cause, value] += part  # type: ignore[assignment]
    measures = {}
    for measure, found in sorted(counts.items()):
        values = sorted({value for _, value in found})
        known_here = {cause: expected.get((cause, measure), {}) for cause in causes}
        logs = _log_likelihoods(causes, values, found, known_here, measure)
        measures[measure] = {value: logs[:, i] for i, value in enumerate(values)}
    weights = dict.fromkeys([*measures, "threads"], 1.0)
    return Model(causes, measures, weights, _priors(threads, seen))


def _priors(
    threads: dict[str, float], seen: dict[str, dict[str, float]]
) -> dict[bool, Any]:
    """Return the priors of causes of batches without and with images."""
    logs: dict[bool, list[float]] = {False: [], True: []}
    for cause, incidents in seen.items():
        num = threads.get(cause, 1.0)
        with_images = incidents.get("seen", 0.0) + INCIDENTS * WITH_IMAGES
        share = with_images / (sum(incidents.values()) + INCIDENTS)
        if "none" not in incidents and cause in threads:
            share = 1.0  # a cause of images
        logs[True].append(np.log(num * share))
        logs[False].append(np.log(num * (1 - share)) if share < 1 else IMPOSSIBLE)
    return {flag: np.array(values) for flag, values in logs.items()}


def _log_likelihoods(
    causes: list[str],
    values: list[str],
    found: Counter[tuple[str, str]],
    expected: dict[str, dict[str, float]],
    measure: str,
) -> Any:
    """Return the logarithm of how often each cause has each value of a measure."""
    of_cause: dict[str, Any] = defaultdict(lambda: np.zeros(len(values)))
    of_family: dict[str, Any] = defaultdict(lambda: np.zeros(len(values)))
    of_all = np.full(len(values), 0.5)
    for (cause, value), num in found.items():
        at = values.index(value)
        for counts in (of_cause[cause], of_family[family(cause)], of_all):
            counts[at] += num
    of_all /= of_all.sum()
    shrink = SHRINK_PLACES if measure in ("samples", "begins") else SHRINK
    rows = []
    for cause in causes:
        if expected[cause]:
            base = shrink * of_all + [expected[cause].get(one, 0.0) for one in values]
        else:  # as its family does, and all faults
            base = of_family[family(cause)] + 2 * of_all
            base = shrink * base / base.sum()
        counts = of_all if cause == "unknown" else of_cause[cause] + base
        rows.append(counts / counts.sum())
    return np.log(np.array(rows))


def write(model: Model) -> None:
    """Write the table of points."""
    with TABLE.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["measure", "value", *model.causes])
        for value, flag in (("images", True), ("no images", False)):
            prior = model.weights["threads"] * model.prior[flag]
            out.writerow(["prior", value, *(f"{one:.2f}" for one in prior)])
        for measure, rows in model.measures.items():
            for value, logs in rows.items():
                points = model.weights[measure] * logs
                out.writerow([measure, value, *(f"{one:.2f}" for one in points)])


def calibrate(pairs: Sequence[tuple[Model, Sequence[Look]]]) -> float:
    """Return the factor of all weights at which what is stated holds on other benches.

    The likelihood shares out among causes that no batch can tell apart; what is stated
    for the first one is to be how often it, or one like it, is right.
    """
    gaps = [
        np.mean([measure_gap(model.sharpen(factor), looks) for model, looks in pairs])
        for factor in FACTORS
    ]
    return float(FACTORS[int(np.argmin(gaps))])


def measure_gap(model: Model, looks: Sequence[Look]) -> float:
    """Return the mean gap between stated and right, over tenths of what is stated."""
    said: dict[int, list[float]] = defaultdict(list)
    for one in looks:
        causes, chance = model.rank(one)
        miss = float(chance[0]) - (causes[0] in one.right)
        said[min(int(chance[0] * 10), 9)].append(miss)
    return sum(abs(sum(one)) for one in said.values()) / max(len(looks), 1)


def report(model: Model, looks: Sequence[Look], title: str) -> str:
    """Return how often the first cause is right, by severity and family."""
    hits: dict[str, list[bool]] = defaultdict(list)
    for one in looks:
        causes, chance = model.rank(one)
        is_right = causes[0] in one.right
        of_family = f"  {family(one.cause) or one.cause}"
        for key in ("all", one.severity, of_family):
            hits[key].append(is_right)
        if chance[0] >= SURE:
            hits["stated 0.9 or more"].append(is_right)
        hits["among the first three"].append(bool({*causes[:3]} & {*one.right}))
    gap = measure_gap(model, looks)
    lines = [f"{title}: mean gap between stated and right {gap:.2f}"]
    lines += [
        f"  {key:44} {100 * np.mean(hits[key]):4.0f} % of {len(hits[key])}"
        for key in dict.fromkeys(["all", *BANDS, *sorted(hits)])
        if key in hits
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the transfer between the benches, fit on both, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, help="the folder of a second bench")
    parser.add_argument(
        "--again", action="store_true", help="use the looks in the cache"
    )
    options = parser.parse_args(arguments)
    if options.again:
        looks = [Look(**one) for one in json.loads(KEPT.read_text())]
    else:
        looks = collect(options.other)
        KEPT.write_text(json.dumps([asdict(one) for one in looks]))
    by_bench = {
        name: [one for one in looks if one.bench == name]
        for name in ("ours", "other", "vllm")
    }
    models = {name: fit(by_bench[name]) for name in FITTED if by_bench[name]}
    pairs = [
        (models[name], by_bench[other])
        for name, other in (FITTED, FITTED[::-1])
        if name in models and by_bench[other]
    ]
    factor = calibrate(pairs or [(models["ours"], by_bench["ours"])])
    models["both"] = fit([one for name in FITTED for one in by_bench[name]])
    models = {name: one.sharpen(factor) for name, one in models.items()}
    for name, model in models.items():
        for other, looks in by_bench.items():
            if other != name and looks:
                print(report(model, looks, f"fitted on {name}, measured on {other}"))
    both = models["both"]
    print("factor:", round(factor, 2))
    print("weights:", {name: round(one, 2) for name, one in both.weights.items()})
    write(both)
    return 0


if __name__ == "__main__":
    sys.exit(main())
