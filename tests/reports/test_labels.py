"""Every format shows a label of a config and does nothing else; drills/labels.py does it in whole."""

import io

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt
from matplotlib import pyplot
from test_tables import small_table

from drills.labels import HOSTILE, of_csv, of_latex
from harness.core.errors import UserError, run_command
from harness.core.files import from_csv, in_csv, in_markdown, one_line
from harness.reports.figures.style import pretty
from harness.reports.tables import latex

TABLE = "| a | b |\n|---|---|\n| {} | end |\n"


@pytest.mark.parametrize("label", HOSTILE)
def test_a_label_in_markdown(label):
    tokens = (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .parse(TABLE.format(in_markdown(label)))
    )
    cells = [token for token in tokens if token.type == "inline"]
    assert [token.content for token in cells][-1] == "end"
    assert len(cells) == 4
    assert {child.type for child in cells[2].children} <= {"text", "text_special"}
    assert "".join(child.content for child in cells[2].children) == one_line(label).strip()


@pytest.mark.parametrize("label", HOSTILE)
def test_a_label_in_csv(label):
    labels = pd.Series(["plain", label, None], dtype=object)  # pyarrow, if it is there, refuses some
    table = pd.DataFrame({"label": labels, "n": [1, 2, 3]})
    text = in_csv(table)
    shape, _ = of_csv(text)
    assert shape == [2, 2, 2, 2]
    read = from_csv(pd.read_csv(io.StringIO(text), dtype={"label": "object"}))
    assert read.label[1] == one_line(label)


def test_numbers_in_csv_are_as_they_were():
    words = pd.Series([5, None, -0.5, "-0.5", "+1e-3", True], dtype=object)
    table = pd.DataFrame({"a": [-0.5, 1, np.nan, 2, 3, -4], "b": words, "c": range(-3, 3)})
    assert in_csv(table) == table.to_csv(index=False)


@pytest.fixture(scope="module")
def small(plan):
    return small_table(plan)


@pytest.mark.parametrize("label", HOSTILE)
def test_a_label_in_latex(label, small):
    artefact, table = small
    plain, _ = of_latex(latex(table, artefact, "notice"))
    labels = table.label.astype(object)
    labelled = table.assign(label=labels.where(table.method != "at", label))
    found, _ = of_latex(latex(labelled, artefact, label))
    assert found == plain


@pytest.mark.parametrize("label", HOSTILE)
def test_a_label_in_a_figure(label):
    figure, axes = pyplot.subplots(figsize=(2, 2))
    try:
        axes.plot([0, 1], label=pretty(label))
        axes.set_title(pretty(f"{label} under l_inf"))
        axes.legend()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # a font lacks some letters
            figure.savefig(io.BytesIO(), format="pdf")
        assert len(axes.get_legend().texts) == 1  # matplotlib leaves out what begins with _
    finally:
        pyplot.close(figure)


def test_an_error_is_one_line_whatever_it_names(capsys):
    def main():
        raise UserError("expected a name, found a\nb \x1b[31m; give another")

    with pytest.raises(SystemExit):
        run_command(main)
    assert capsys.readouterr().err == "error: expected a name, found a\\nb \\x1b[31m; give another\n"
