"""The page, in a real Chromium: no error, no network, sortable, reachable, readable, harmless."""

import base64
import copy
import dataclasses
import io
import re

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from browser import Browser, chromium
from conftest import ARTEFACT, METHODS

from harness.core.files import write_json
from harness.external.report import Report
from harness.grid.plan import Plan
from harness.reports.figures.style import pretty
from harness.reports.figures.themed import SETTINGS, themed
from harness.reports.page.build import write_page
from harness.reports.page.finding import Axis, said
from harness.reports.page.render import duration, span, symbols
from harness.reports.page.runs import config_text
from harness.reports.page.sparklines import HEIGHT, WIDTH, charts
from harness.reports.palette import DARK_PAPER
from harness.reports.tables import write_table

FIGURE = "extra_figure"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
KNOWN = {"nt": 9.5, "at": 100.0, "trades6": 20.0, "generalist_d_nt_linf": None}  # of PGD20
CLAIM = {
    "id": "first",
    "claim": "late decay of gamma is best",
    "source": "a paper",
    "published_verdict": "holds",
    "published_numbers": "50.1 against 48.3",
    "our_verdict": "undecided",
    "our_numbers": "difference 1.0, 95 % -2.1 to 4.1",
    "artefacts": f"{ARTEFACT} nothing_of_ours",
}


def add_figure(plan, reports, caption):
    """An artefact that is no table, drawn by hand."""
    drawn = {"name": FIGURE, "kind": "scatter", "caption": caption}
    figure = dataclasses.replace(plan.artefact(ARTEFACT), **drawn)
    plan.artefacts = {ARTEFACT: plan.artefact(ARTEFACT), FIGURE: figure}
    path, drawn = reports / "ci" / "figures" / f"{FIGURE}.svg", io.BytesIO()
    path.parent.mkdir(parents=True)
    with plt.rc_context(SETTINGS):
        picture = plt.figure(figsize=(4, 3))
        picture.suptitle(pretty(caption))
        picture.savefig(drawn, format="svg")
    path.write_bytes(themed(drawn.getvalue()))
    write_json(path.with_suffix(".json"), {})
    plt.close("all")


@pytest.fixture(scope="module")
def page(built, grid, tmp_path_factory):
    """The page of the small build, with a figure, a claim, and known numbers in one column."""
    reports, plan = tmp_path_factory.mktemp("page"), Plan.read("ci", grid)
    write_table(plan, ARTEFACT, built / "results", reports)
    path = reports / "ci" / "tables" / f"{ARTEFACT}.csv"
    table = pd.read_csv(path)
    known = table.column == "PGD20"
    table.loc[known, "ours"] = table[known].method.map(KNOWN)
    table[table.ours.notna()].to_csv(path, index=False)
    add_figure(plan, reports, "What is drawn.")
    pd.DataFrame([CLAIM]).to_csv(reports / "ci" / "claims.csv", index=False)
    return write_page(plan, built / "results", reports)


@pytest.fixture(scope="module")
def chrome():
    if chromium() is None:
        pytest.skip("no Chromium on this machine: install chromium to test the page in it")
    with Browser() as started:
        yield started


@pytest.fixture
def opened(chrome, page):
    chrome.problems.clear()
    chrome.requests.clear()
    chrome.media()
    chrome.open(page)
    return chrome


def shown(browser, column):
    """A column of the first table of numbers, from top to bottom."""
    found = f"[...document.querySelectorAll('.numbers tbody tr')].map(r => r.cells[{column}])"
    return browser.value(f"{found}.map(c => c.dataset.value ?? c.textContent)")


def heading(column):
    return f".numbers thead th:nth-child({column + 1})"


def order(browser, column):
    return browser.value(f"document.querySelector('{heading(column)}').ariaSort")


def focus(browser, selector):
    browser.value(f"document.querySelector('{selector}').focus()")


def test_opens_without_an_error_or_the_network(opened, page):
    assert opened.problems == []
    outside = [one for one in opened.requests if not one.startswith(("data:", page.as_uri()))]
    assert outside == []
    assert page.stat().st_size < 1e6


def test_says_what_was_built(opened):
    top = opened.value("document.querySelector('header').innerText")
    assert "9 models, 1 table, 1 figure." in top
    assert "stand-in data" in top
    made = opened.value("document.querySelector('#provenance').textContent")
    assert "training: 1297 images, embedded; test: embedded" in made
    assert "3 epochs in batches of 64, on the first 256 training images" in made
    assert "cores" in made
    order = opened.value("[...document.querySelectorAll('main > [id]')].map(e => e.id)")
    assert order == ["top", "chart", "tables", "verdicts", "figures", "made"]
    folded = opened.value("[...document.querySelectorAll('#made > details')].map(d => d.open)")
    assert folded == [False] * 3
    links = "[...document.querySelectorAll('.contents a')].map(a => a.getAttribute('href'))"
    assert {f"#{ARTEFACT}", f"#{FIGURE}", "../published/audit.md"} <= set(opened.value(links))


@pytest.mark.parametrize("how", ["click", "Enter", " "])
def test_numbers_sort_both_ways_and_back(opened, how):
    def sort():
        button = f"{heading(2)} button"
        if how == "click":
            opened.click(button)
        else:
            focus(opened, button)
            opened.press(how)

    as_built = shown(opened, 0)
    sort()
    assert order(opened, 2) == "descending"
    assert shown(opened, 2) == ["100.0", "20.0", "9.5", ""]  # not as words; the unknown last
    sort()
    assert order(opened, 2) == "ascending"
    assert shown(opened, 2) == ["9.5", "20.0", "100.0", ""]
    sort()
    assert order(opened, 2) == "none"
    assert shown(opened, 0) == as_built


def test_words_sort_and_only_one_column_is_sorted(opened):
    opened.click(f"{heading(2)} button")
    opened.click(f"{heading(0)} button")
    assert order(opened, 2) == "none"
    assert order(opened, 0) == "ascending"
    assert shown(opened, 0) == sorted(shown(opened, 0))


def test_every_figure_is_visible(opened):
    opened.value("Promise.all([...document.images].map(image => image.decode()))")
    found = opened.value(
        "[...document.images].map(i => [i.naturalWidth, i.offsetWidth, i.alt, i.complete])"
    )
    assert len(found) == 1
    for natural, width, alt, complete in found:
        assert (natural, complete) == (384, True)  # 4 inches
        assert width > 300
        assert FIGURE in alt
    assert "What is drawn." in opened.value("document.querySelector('#figures figcaption').innerText")


def test_the_line_beneath_numbers_can_be_chosen(opened):
    def visible():
        small = "[...document.querySelectorAll('.numbers tbody tr:first-child td:nth-child(2) small')]"
        return opened.value(f"{small}.filter(s => s.offsetHeight).map(s => s.className)")

    assert visible() == ["published"]
    focus(opened, "#beneath-published")
    for what in ("difference", "interval"):
        opened.press("ArrowRight")
        assert visible() == [what]
    opened.press("ArrowRight")
    assert visible() == []


def test_tab_reaches_everything(opened):
    """Sort buttons, regions that scroll, one number per table, sections that open, links."""
    opened.value("document.querySelectorAll('details').forEach(d => { d.open = !d.matches('.run'); })")
    opened.value("window.reached = new Set()")
    for _ in range(300):
        opened.press("Tab")
        opened.value("reached.add(document.activeElement), 0")
        if opened.value("document.activeElement === document.body"):
            break
    missed = opened.value(
        "[...document.querySelectorAll('button, summary, .scroll, a, [type=checkbox], #find, .point')]"
        ".filter(e => e.checkVisibility() && !reached.has(e)).map(e => e.outerHTML.slice(0, 90))"
    )
    assert missed == []
    assert opened.value("[...reached].filter(e => e.matches('th button')).length") >= 12 + 4
    assert opened.value("[...reached].filter(e => e.matches('td')).length") == 1


def test_a_number_says_what_it_rests_on_by_mouse(opened):
    opened.point(".numbers tbody tr:nth-child(2) td:nth-child(3)")
    tip = opened.value("document.getElementById('tip').innerText")
    assert "AT, PGD20: 100.00" in tip
    assert "95 % interval" in tip
    assert "digits-tiny-at-s0-" in tip
    opened.point("h1")
    assert opened.value("document.getElementById('tip').hidden")


def test_a_number_says_what_it_rests_on_by_keyboard(opened):
    focus(opened, ".numbers td")
    opened.press("ArrowDown", "ArrowRight")
    assert "AT, PGD20: 100.00" in opened.value("document.getElementById('tip').innerText")
    assert opened.value("document.activeElement.getAttribute('aria-describedby')") == "tip"
    opened.press("Escape")
    assert opened.value("document.getElementById('tip').hidden")
    opened.press("Enter")
    run = opened.value("document.activeElement.textContent")
    assert run.startswith("digits-tiny-at-s0-")
    opened.press("Escape")
    assert opened.value("document.activeElement.tagName") == "TD"
    opened.press("Enter", "Enter")
    opened.wait(f"document.getElementById('run-{run}').open")
    assert opened.value("document.activeElement.parentElement.id") == f"run-{run}"
    assert opened.value("document.getElementById('tip').hidden")


def test_a_run_shows_its_config_curves_and_checks(opened, page, grid):
    run = f"run-{Plan.read('ci', grid).artefact(ARTEFACT).runs[-1]}"
    opened.open(page, f"#{run}")
    text = opened.value(f"document.getElementById('{run}').innerText")
    assert "epochs: 3" in text
    assert "eps: 36/255" in text
    assert "Deploys epoch 3 of 3" in text
    assert "PGD20 takes 20 steps" in text
    lines = f"document.querySelectorAll('#{run} polyline')"
    assert opened.value(f"{lines}.length") >= 3  # two losses and gamma
    assert opened.value(f"[...{lines}].every(l => l.getBoundingClientRect().width > 50)")


def test_runs_can_be_found(opened):
    opened.click("#runs > summary")
    focus(opened, "#find")
    opened.type("TRADES")
    visible = "[...document.querySelectorAll('.run')].filter(r => !r.hidden).map(r => r.id)"
    (found,) = opened.value(visible)
    assert "trades6" in found
    assert opened.value("document.getElementById('found').value") == "1 of 9"


def test_verdicts(opened):
    text = opened.value("document.getElementById('verdicts').innerText")
    assert "On ours: 0 holds, 0 fails, 1 undecided" in text
    assert "late decay of γ is best" in text
    assert "50.1 against 48.3" not in text  # folded
    opened.click(".claim summary")
    assert "50.1 against 48.3" in opened.value("document.getElementById('verdicts').innerText")
    links = "[...document.querySelectorAll('.claim a')].map(a => a.getAttribute('href'))"
    assert opened.value(links) == [f"#{ARTEFACT}"]
    for word, seen in (("fails", False), ("undecided", True), ("holds", False), ("all", True)):
        opened.click(f"#only-{word}")
        assert opened.value("document.querySelector('.claim').checkVisibility()") == seen


def test_the_finding_has_the_numbers_of_the_table(opened, page):
    finding = opened.value("document.querySelector('.finding').innerText").split("\n\n")
    assert len(finding) == 3
    assert finding[0].startswith("Of 1 claim of the papers, on our numbers 1 is undecided; on the")
    table = pd.read_csv(page.parent / "tables" / f"{ARTEFACT}.csv").set_index(["method", "column"])
    ours = table.loc["generalist_d_nt_linf"]
    for column in ("NAT", "AA"):
        low, high = ours.low[column], ours.high[column]
        assert f"{ours.ours[column]:.1f} % [{low:.1f}, {high:.1f}]" in finding[1]
    assert f"(the paper prints {ours.published['NAT']} and {ours.published['AA']})" in finding[1]
    baselines = table.xs("AA", level="column").drop("generalist_d_nt_linf")
    best = baselines.loc[baselines.ours.idxmax()]
    assert f"for the most robust baseline, {symbols(best.label)}:" in finding[2]
    assert f"{best.ours - ours.ours['AA']:.1f} points below it" in finding[2]


def test_a_point_shows_its_interval_and_its_number_of_images(opened, page):
    assert opened.value("document.querySelectorAll('.point').length") == len(METHODS)
    assert opened.value("document.querySelectorAll('.joined').length") == len(METHODS)
    fill = "getComputedStyle(p.querySelector('.filled')).fill"
    fills = opened.value(f"[...document.querySelectorAll('.point')].map(p => {fill})")
    assert len(set(fills)) == len(METHODS)
    opened.point(f".point[data-method={METHODS[-1]}] .filled")
    tip = "document.getElementById('tip').innerText"
    assert opened.value(tip).startswith("Generalist-D (NT + ℓ∞)")
    assert "published" in opened.value(tip).split("\n")[1]
    opened.point("h1")
    focus(opened, ".point[data-method=at]")
    opened.wait("!document.getElementById('tip').hidden")
    row = pd.read_csv(page.parent / "tables" / f"{ARTEFACT}.csv").query("method == 'at'")
    cell = row.set_index("column").loc["NAT"]
    interval = f"NAT {cell.ours:.2f} [{cell.low:.2f}, {cell.high:.2f}], published {cell.published:.2f}"
    assert interval in opened.value(tip)
    assert f"n = {cell.n:.0f}" in opened.value(tip)
    inside = opened.value("""(() => {
      const area = document.querySelector('#chart svg').getBoundingClientRect();
      return [...document.querySelectorAll('.filled, .hollow, .whiskers')].every(e => {
        const box = e.getBoundingClientRect();
        return box.left >= area.left && box.right <= area.right && box.top >= area.top;
      });
    })()""")
    assert inside


def test_chosen_methods_are_the_only_ones_everywhere(opened):
    def seen():
        visible = ".filter(e => !e.hidden && e.checkVisibility()).map(e => e.dataset.method)"
        rows = opened.value(f"[...document.querySelectorAll('.numbers tbody tr')]{visible}")
        points = opened.value(
            "[...document.querySelectorAll('.point:not([hidden])')].map(e => e.dataset.method)"
        )
        return rows, points

    assert seen() == (METHODS, METHODS)
    opened.click("#chart .chip[data-label=at]")
    assert seen() == (["at"], ["at"])
    assert opened.value("document.getElementById('chosen').value") == "1 of 4"
    opened.click(".filter summary")
    opened.click(f".filter .chip[data-label={METHODS[-1]}]")
    assert seen() == (["at", METHODS[-1]], ["at", METHODS[-1]])
    opened.click("#all-methods")
    assert seen() == (METHODS, METHODS)
    assert opened.value("document.querySelectorAll('[name=method]:checked').length") == 0


def test_rows_of_ours_stand_out(opened):
    ours = "[...document.querySelectorAll('tr.ours')].map(r => r.dataset.method)"
    assert opened.value(ours) == [METHODS[-1]]
    colour = "getComputedStyle(document.querySelector('{}')).backgroundColor"
    mine, other = (opened.value(colour.format(f"tr{own} td")) for own in (".ours", ":not(.ours)"))
    assert mine != other


@pytest.mark.parametrize(("place", "suffix"), [(1, ".tex"), (2, ".md")])
def test_a_table_can_be_copied(opened, page, place, suffix):
    opened.send("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    opened.click(f"#{ARTEFACT} button.copy:nth-of-type({place})")
    opened.wait(f"document.querySelector('button.copy:nth-of-type({place})').textContent == 'Copied'")
    text = (page.parent / "tables" / f"{ARTEFACT}{suffix}").read_text()
    assert opened.value("navigator.clipboard.readText()") == text
    assert opened.problems == []


def test_headings_show_their_anchor(opened):
    found = opened.value(
        "[...document.querySelectorAll('main h2, article h3')].map(h =>"
        " [h.firstElementChild.hash.slice(1), h.closest('[id]').id,"
        "  getComputedStyle(h.firstElementChild, '::after').content])"
    )
    assert len(found) == 6
    assert all(link == own and sign == '" #"' for link, own, sign in found)


def test_on_a_phone_the_finding_comes_first_and_verdicts_are_cards(opened):
    opened.resize(390, 844)
    assert opened.value("document.querySelector('.finding').getBoundingClientRect().bottom") < 844
    parts = "[...document.querySelectorAll('.claim summary > span')].map(s => s.offsetLeft)"
    assert len(set(opened.value(parts))) == 1  # below each other


def test_without_a_script_all_is_there(opened, page):
    opened.value("document.documentElement.classList.remove('js')")
    hidden = "[...document.querySelectorAll('.scripted')].every(e => !e.checkVisibility())"
    assert opened.value(hidden)
    assert opened.value("[...document.querySelectorAll('tr')].filter(r => r.hidden).length") == 0
    text = page.read_text()
    assert text.count("<title>") == 1 + len(METHODS)  # a point's numbers, without a script too


def test_in_the_dark_a_figure_is_dark(opened):
    corner = """(async () => {
      const image = document.images[0], canvas = document.createElement('canvas');
      await image.decode();
      canvas.width = image.width; canvas.height = image.height;
      canvas.getContext('2d').drawImage(image, 0, 0);
      return [...canvas.getContext('2d').getImageData(3, 3, 1, 1).data].slice(0, 3);
    })()"""
    for scheme, paper in (("light", "#ffffff"), ("dark", DARK_PAPER)):
        opened.media(prefers_color_scheme=scheme)
        assert bytes(opened.value(f"await {corner}")) == bytes.fromhex(paper[1:])


def test_print_keeps_a_title_with_its_figure(opened):
    opened.media("print")
    kept = "getComputedStyle(document.querySelector('#figures {}')).{}"
    assert opened.value(kept.format("article", "breakInside")) == "avoid"
    assert opened.value(kept.format("h3", "breakAfter")) == "avoid"
    # or all that follows would have to stay together, and Chromium would give up
    assert opened.value(kept.format("figcaption .about", "breakAfter")) == "auto"
    printed = opened.send("Page.printToPDF", preferCSSPageSize=True)["data"]
    assert len(re.findall(rb"/Type /Page\b", base64.b64decode(printed))) <= 5


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_the_page_never_scrolls_sideways(opened, width):
    opened.resize(width)
    opened.value("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    opened.value("document.getElementById('beneath-interval').click()")
    focus(opened, ".numbers tbody tr:last-child td:last-child")
    assert opened.value("document.documentElement.scrollWidth") <= width
    assert opened.value("document.getElementById('tip').getBoundingClientRect().right") <= width
    wide = opened.value("document.querySelector('.numbers').parentElement.scrollWidth")
    assert wide > 320  # the table scrolls in its own region


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(opened, scheme):
    opened.media(prefers_color_scheme=scheme)
    ratios = opened.value("""(() => {
      const rgb = text => text.match(/[\\d.]+/g).map(Number);
      const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
        .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
      const behind = e => {
        const colour = getComputedStyle(e).backgroundColor;
        return rgb(colour)[3] === 0 && e.parentElement ? behind(e.parentElement) : colour;
      };
      const texts = 'p, a, small, th, td, dt, dd, h1, summary, .notice, .doubt, .verdict';
      return [...document.querySelectorAll(texts)].filter(e => e.offsetParent).map(e => {
        const pair = [getComputedStyle(e).color, behind(e)].map(c => light(rgb(c)));
        return [(Math.max(...pair) + .05) / (Math.min(...pair) + .05), e.outerHTML.slice(0, 60)];
      });
    })()""")
    assert len(ratios) > 100
    assert [one for one in ratios if one[0] < 4.5] == []


def test_print_shows_whole_tables(opened):
    opened.resize(1040)  # what A4 on its side holds
    opened.media("print")
    assert opened.value("getComputedStyle(document.querySelector('.bar')).display") == "none"
    assert opened.value("document.documentElement.scrollWidth") <= 1040


def test_hostile_text_does_nothing(chrome, built, grid, tmp_path):
    content = copy.deepcopy(Plan.read("ci", grid).grid)
    content["labels"] |= {"at": HOSTILE, "trades6": HOSTILE}
    content["artefacts"][ARTEFACT]["title"] = HOSTILE
    clean = Plan.read("ci", grid)
    plan = Plan(content, {**clean.scale, "notice": HOSTILE}, "ci")
    write_table(plan, ARTEFACT, built / "results", tmp_path)
    add_figure(plan, tmp_path, HOSTILE)
    claim = dict.fromkeys(CLAIM, HOSTILE)
    pd.DataFrame([claim]).to_csv(tmp_path / "ci" / "claims.csv", index=False)
    chrome.problems.clear()
    chrome.open(write_page(plan, built / "results", tmp_path))
    chrome.value("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    chrome.point(".numbers tbody tr:nth-child(2) td:nth-child(3)")
    assert HOSTILE in chrome.value("document.getElementById('tip').textContent")
    assert chrome.value("document.querySelector('#tables h3').textContent") == HOSTILE
    assert chrome.value("document.querySelector('.notice').textContent") == HOSTILE
    label = chrome.value("document.querySelector('#tables .scroll').getAttribute('aria-label')")
    assert label.startswith(HOSTILE)
    assert HOSTILE in chrome.value("document.images[0].alt")
    drawn = "document.images[0].decode().then(() => decodeURIComponent(document.images[0].src))"
    assert HOSTILE.split("><")[-1][:-1] in chrome.value(f"await {drawn}")  # its letters, as letters
    assert chrome.value("document.scripts.length") == 1
    assert chrome.value("document.images.length") == 1
    assert chrome.problems == []


def test_a_script_that_is_not_the_pages_own_cannot_run(opened):
    opened.value(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"hit=1\">')"
    )
    opened.value("new Promise(done => setTimeout(done, 200))")
    assert opened.value("typeof hit") == "undefined"
    assert any("Content Security Policy" in problem for problem in opened.problems)


def test_the_report_of_somebody_elses_model(chrome, tmp_path):
    rows = [("NAT", 90.0, 80.0, 95.0, 60, 0), ("PGD20", 5.0, 1.0, 9.0, 60, 20)]
    rows += [("AA", 10.0, 4.0, 17.0, 60, 100)]
    table = pd.DataFrame(rows, columns=["column", "percent", "low", "high", "n", "gradient_calls"])
    table = table.assign(norm="linf", eps="8/255", measures="accuracy", doubts=HOSTILE)
    checks = pd.DataFrame(
        [("usable gradients", "linf", "failed", HOSTILE)], columns=["check", "norm", "verdict", "found"]
    )
    about = {"model": f"net.py:{HOSTILE}", "images": "digits", "weights": f"/{'long' * 90}/{HOSTILE}"}
    Report(table, table, checks, (HOSTILE,), about, tmp_path).save()
    chrome.problems.clear()
    chrome.open(tmp_path / "report.html", width=320)
    assert HOSTILE in chrome.value("document.querySelector('h1').textContent")
    assert chrome.value("document.documentElement.scrollWidth") <= 320
    chrome.click("th:nth-child(2) button")
    first = "[...document.querySelector('tbody').rows].map(r => r.cells[0].textContent)"
    assert chrome.value(first) == ["NAT", "AA", "PGD20"]
    assert chrome.problems == []


def test_curves_stay_in_their_chart():
    history = pd.DataFrame(
        {"epoch": [1, 2, 3], "loss_a": [2, 1, 0], "loss_b": [3, None, 1], "lr": 0.1, "none": None}
    )
    loss, lr = charts(history, deployed_epoch=2)
    assert [line.name for line in loss.lines] == ["loss_a", "loss_b"]
    assert (loss.low, loss.high) == (0, 3)
    assert loss.deployed == WIDTH / 2
    first, second = ([p.split(",") for p in line.points.split()] for line in loss.lines)
    assert [float(x) for x, _ in first] == [0, WIDTH / 2, WIDTH]
    assert [float(y) for _, y in second] == [0, pytest.approx(HEIGHT * 2 / 3, abs=0.1)]
    assert [line.points for line in lr.lines] == [
        f"0,{HEIGHT / 2} {WIDTH / 2:g},{HEIGHT / 2} {WIDTH},{HEIGHT / 2}"
    ]


def test_config_is_readable():
    ball = {"class": "Ball", "revision": 1, "norm": "linf", "eps": "12/85"}
    method = {"class": "AT", "revision": 2, "ball": ball, "step": "7/50", "c": "1/24"}
    text = config_text({"class": "TrainRun", "revision": 1, "method": method, "knots": [["0", 1.0]]})
    assert text == (
        "method:\n  AT:\n    ball:\n      norm: linf\n      eps: 36/255\n"
        "    step: 0.14\n    c: 1/24\nknots: [[0, 1.0]]\n"
    )


def test_verdicts_as_a_sentence():
    counts = {"holds": 1, "fails": 13, "undecided": 0, "not measured": 22}
    assert said(counts) == "1 holds, 13 fail and 22 are not measured"
    assert said({"no number": 1}) == "1 has no number"
    assert said({}) == ""


def test_ticks_are_round_and_inside():
    axis = Axis("AA", -1.2, 49.0, 400)
    assert [value for value, _ in axis.ticks] == [0, 10, 20, 30, 40]
    assert axis.place(-1.2) == 0
    assert axis.place(49.0) == 400


def test_words_for_readers():
    assert symbols("AT (l_inf + l_2), lambda = 6, gamma_1") == "AT (ℓ∞ + ℓ₂), λ = 6, γ₁"
    assert symbols("steps and AA_inf stay") == "steps and AA_inf stay"
    assert (span([3]), span(iter([12, 3, 12]))) == ("3", "3 to 12")
    assert [duration(s) for s in (5.2, 90, 5400)] == ["5 s", "1.5 min", "1.5 h"]


def test_a_figure_that_is_missing_is_said(built, grid, tmp_path):
    plan = Plan.read("ci", grid)
    write_table(plan, ARTEFACT, built / "results", tmp_path)
    add_figure(plan, tmp_path, "")
    (tmp_path / "ci" / "figures" / f"{FIGURE}.svg").unlink()
    with pytest.raises(FileNotFoundError, match=FIGURE):
        write_page(plan, built / "results", tmp_path)


def test_no_claims_no_verdicts(built, grid, tmp_path):
    plan = Plan.read("ci", grid)
    plan.artefacts = {ARTEFACT: plan.artefact(ARTEFACT)}
    write_table(plan, ARTEFACT, built / "results", tmp_path)
    page = write_page(plan, built / "results", tmp_path).read_text()
    assert 'id="verdicts"' not in page
    assert 'id="figures"' not in page


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_table_of_several_seeds_says_what_its_deviations_are(built, grid, tmp_path, seeds):
    plan = Plan.read("ci", grid)
    plan.artefacts = {ARTEFACT: plan.artefact(ARTEFACT)}
    write_table(plan, ARTEFACT, built / "results", tmp_path)
    path = tmp_path / "ci" / "tables" / f"{ARTEFACT}.csv"
    pd.read_csv(path).assign(seeds=seeds).to_csv(path, index=False)
    text = write_page(plan, built / "results", tmp_path).read_text()
    assert (f"mean ± deviation over {seeds} seeds" in text) == (seeds > 1)
