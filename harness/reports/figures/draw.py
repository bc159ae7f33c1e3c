"""One figure: `generalist-bench figures --scale smoke --artefact plusplus_fig5`.

PDF for print, PNG for the screen, SVG for the page, and the CSV that is drawn; the same records give
the same bytes.
"""

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from harness.core.files import in_csv, write_whole
from harness.evaluation.records import read_artefact
from harness.evaluation.trust import write_checks
from harness.grid.plan import Plan, reported
from harness.reports.figures import (
    agreement,
    classes,
    curves,
    effects,
    embedding,
    fronts,
    images,
    line,
    points,
    theory,
)
from harness.reports.figures.source import Source
from harness.reports.figures.style import STYLE, sign
from harness.reports.figures.themed import SETTINGS, themed

KINDS: dict[str, Callable[[Source], tuple[Figure, pd.DataFrame]]] = {
    "scatter": points.draw_scatter,
    "points": points.draw_points,
    "front": fronts.draw,
    "effects": effects.draw,
    "sweep": points.draw_sweep,
    "radii": points.draw_radii,
    "classes": classes.draw,
    "agreement": agreement.draw,
    "gallery": images.draw_gallery,
    "heatmaps": images.draw_heatmaps,
    "curves": curves.draw_curves,
    "learners": curves.draw_learners,
    "embedding": embedding.draw,
    "line": line.draw,
    "theory": theory.draw,
}


def write_figure(plan: Plan, name: str, results: Path, reports: Path) -> None:
    artefact = plan.artefact(name)
    read = read_artefact(artefact, plan, results) if artefact.columns else {}
    source = Source(artefact, plan, results, read, write_checks(plan, artefact, read, reports))
    with pyplot.rc_context(STYLE | SETTINGS):
        figure, drawn = KINDS[source.artefact.kind](source)
        sign(figure, source, drawn)
        stem = reports / plan.name / "figures" / name
        for suffix, stamp in ((".pdf", "CreationDate"), (".png", "Software"), (".svg", "Date")):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix[1:], metadata={stamp: None})
            data = buffer.getvalue()
            write_whole(stem.with_suffix(suffix), themed(data) if suffix == ".svg" else data)
        pyplot.close(figure)
    write_whole(stem.with_suffix(".csv"), in_csv(drawn))


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw one figure as PDF, PNG and SVG, with its CSV.")
    parser.add_argument("--artefact", required=True)
    plan, options = reported(parser, "figures")
    write_figure(plan, options.artefact, options.results, options.reports)
