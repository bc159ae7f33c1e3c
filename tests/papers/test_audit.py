"""The audit finds what is known to be odd, by rules that would find more."""

from dataclasses import replace

import pandas as pd
import pytest

from harness.papers.audit import (
    RULES,
    aa_above_a_component,
    audit,
    far_out_of_distribution,
    outliers,
    rows_that_differ,
    rows_that_share_numbers,
)
from harness.papers.audit import union_is_not_the_mean as union
from harness.papers.experiments import (
    methods_without_a_row,
    rows_of_others,
    rows_said_to_be_one,
    settings_that_differ,
)
from harness.papers.published import PUBLISHED, Papers
from harness.papers.statements import comparisons_in_prose, numbers_in_prose

T = "generalist_t"


@pytest.fixture(scope="module")
def papers():
    return Papers.read()


def found_by(rule, papers, where, text):
    return [one for one in rule(papers) if where in one.where and text in one.found]


@pytest.mark.parametrize(
    ("rule", "where", "found"),
    [
        # EVALUATION, section 5: AA above one of its components
        (aa_above_a_component, "cvpr23 table3, cifar100, resnet18, at", "AA 23.87 above APGD_t 21.98"),
        (
            aa_above_a_component,
            "zipper table5, cifar10, resnet18, at_l2",
            "AA 62.71 above APGD_ce 62.19",
        ),
        (aa_above_a_component, "zipper table1b, cifar10, wrn32_10, at", "AA 48.17 above APGD_t 46.34"),
        (aa_above_a_component, "zipper table4, tinyimagenet, resnet18, at", "AA 15.44"),
        (aa_above_a_component, "zipper table4, tinyimagenet, resnet18, trades1", "AA 17.76"),
        (aa_above_a_component, "zipper table4, tinyimagenet, resnet18, generalist", "AA 19.03"),
        # Union is not the mean it is defined as
        (union, "plusplus table2, cifar100, resnet18, generalist_d_linf_l2", "31.240"),
        (union, "plusplus table1, cifar10, resnet18, agr", "50.855"),
        (union, "plusplus table3, imagenet, wrn50_2, generalist_d_linf_l2", "51.200"),
        # The same row differs between documents
        (rows_that_differ, "cifar10, resnet18, at_half", "NAT 87.84 / 87.34"),
        (rows_that_differ, "cifar10, resnet18, iat", "NAT 84.60 / 83.70"),
        (rows_that_differ, "cifar10, wrn32_10, iat", "PGD20 50.55 / 48.85"),
        (rows_that_differ, "cifar10, wrn32_10, fat", "permuted"),
        (rows_that_differ, "generalist_d_nt_linf_lr_nt0.1_at0.01", "AA 46.37 / 46.07"),
        # Outliers
        (outliers, "plusplus table2, cifar100, resnet18, iat", "PGD20_2 55.76, AA_2 28.73"),
        (outliers, "plusplus table4, cifar10-p, msd", "48.03"),
        (far_out_of_distribution, "table4, cifar10-p, resnet18, eat", "gap 35.28"),
        (far_out_of_distribution, "table4, cifar10-p, wrn32_10, eat", "gap 16.19"),
        (far_out_of_distribution, "table4, cifar100-p, wrn32_10, msd", "gap 35.62"),
        (far_out_of_distribution, "table4, cifar100-p, resnet18, rmc", "gap 29.07"),
        # Different methods, the same numbers
        (rows_that_share_numbers, "cifar10, resnet18, fat and score", "NAT 87.72"),
        (rows_that_share_numbers, "table4: cifar10-p, resnet18, at and at_half", "ACC 83.35"),
        (rows_that_share_numbers, "table2: cifar100, wrn32_10, at and trades1", "AA_2 31.50"),
        (
            rows_that_share_numbers,
            "zipper table9: cifar10, resnet18, generalist_d_nt_linf and ",
            "APGD_t 45.37; the text says that they are one model",
        ),
        (rows_that_share_numbers, "all columns", "7 pairs of rows are equal in a column"),
        # Text against tables
        (numbers_in_prose, "cvpr23, 4.1", "gives 8.97; it is the number of nt"),
        (comparisons_in_prose, "in each aspect", f"AA_inf in table1, cifar10, resnet18: {T} 43.23"),
        (settings_that_differ, "epochs, cifar100", "200 / 120, and 5 rows are the same"),
        (settings_that_differ, "cvpr23, Table 2, caption: eps, mnist", "0.3 / 8/255"),
        (rows_of_others, "imagenet, resnet50, fast_at", "Wong2020Fast"),
        (rows_of_others, "imagenet, resnet50, at", "Salman2020Do_R50"),
        (rows_of_others, "imagenet, wrn50_2, at", "Salman2020Do_50_2"),
        # and what that list does not have
        (numbers_in_prose, "relative decrease of 3.65%", "gives 13.33; it is nt minus fat"),
        (comparisons_in_prose, "best performance", "AA in table2, svhn, resnet18"),
        (comparisons_in_prose, "Table 3, bold", "trades6 23.72 is not among"),
        (comparisons_in_prose, "plusplus, V-C", "generalist_d_linf_l2 68.36, not above at 68.46"),
        (settings_that_differ, "gamma of the headline model", "(1, 1, 1, 0) / (1, 1, 1, 0.5)"),
        (settings_that_differ, "number of AutoAttack's components", "5 / 4"),
        (rows_said_to_be_one, "table5 / table1a", "AA 46.37 / 46.07"),
        (methods_without_a_row, "IV-A", "in the text only: ramp; in the tables only: rmc"),
    ],
)
def test_known_cases(rule, where, found, papers):
    assert found_by(rule, papers, where, found)


def test_permuted_rows_between_zipper_and_cvpr(papers):
    permuted = [one for one in rows_that_differ(papers) if "permuted" in one.found]
    assert len(permuted) >= 8


def test_a_consistent_table_is_not_accused(papers):
    values = papers.values
    one = values[(values.document == "cvpr23") & (values.artefact == "table1a")]
    clean = replace(papers, values=one)
    assert not list(aa_above_a_component(clean))
    assert not list(rows_that_differ(clean))


def test_what_agrees_is_not_accused(papers):
    assert not found_by(comparisons_in_prose, papers, "the only one above 89 natural", "")
    assert not found_by(numbers_in_prose, papers, "14.89 error of TRADES", "")
    # other steps for other experiments: no row of the one is a row of the other
    assert not found_by(settings_that_differ, papers, "step of the l_2 learner", "")
    assert not found_by(rows_of_others, papers, "generalist", "")


def test_a_new_contradiction_in_the_numbers_would_be_found(papers):
    row = dict(document="new", artefact="t", dataset="d", arch="a", method="m", std=None)
    added = pd.DataFrame(
        [{**row, "metric": "AA", "value": 50.0}, {**row, "metric": "APGD_t", "value": 49.0}]
    )
    more = replace(papers, values=pd.concat([papers.values, added]))
    assert found_by(aa_above_a_component, more, "new t", "AA 50.00")


def one_column(values, dataset="d", metric="NAT", table="t"):
    """A printed column: method -> number."""
    row = dict(document="new", artefact=table, dataset=dataset, arch="a", metric=metric, std=None)
    return pd.DataFrame([{**row, "method": m, "value": v} for m, v in values.items()])


def test_only_the_three_methods_for_several_norms_are_far_out_of_distribution(papers):
    accused = {one.where.split(", ")[-1] for one in far_out_of_distribution(papers)}
    assert accused == {"msd", "eat", "rmc"}


def test_a_row_that_falls_out_of_distribution_would_be_found(papers):
    natural = one_column(dict(a=90, b=85, c=80, d=88, e=84))
    both = {"a": 86, "b": 82, "c": 77, "d": 84, "e": 60}
    fallen = pd.concat([natural, one_column(both, dataset="d-p", metric="ACC", table="u")])
    (found,) = far_out_of_distribution(replace(papers, values=fallen))
    assert found.where == "new u, d-p, a, e"
    assert found.found == "NAT 84.00, d-p 60.00, gap 24.00; the median gap is 4.00"
    even = pd.concat([natural, one_column({**both, "e": 81}, dataset="d-p", table="u")])
    assert not list(far_out_of_distribution(replace(papers, values=even)))
    elsewhere = natural.assign(document="other")  # another paper's natural accuracy is no measure
    fallen = pd.concat([elsewhere, fallen[fallen.dataset == "d-p"]])
    assert not list(far_out_of_distribution(replace(papers, values=fallen)))


def test_two_methods_that_share_a_number_would_be_found(papers):
    one = one_column({"x": 81.25, "y": 81.25, "z": 80.5, "still": 0.0, "dead": 0.0})
    other = one_column({"z": 81.25}, dataset="elsewhere")
    found = list(rows_that_share_numbers(replace(papers, values=pd.concat([one, other]))))
    assert [finding.where for finding in found] == ["new t: d, a, x and y", "all columns of all tables"]
    assert found[0].found == "NAT 81.25"
    # x and z, y and z lie within a point: 2 of 200 steps
    assert found[1].found == "1 pairs of rows are equal in a column; about 0.0 would be by chance"
    apart = one_column({"x": 81.25, "y": 81.26})
    assert not list(rows_that_share_numbers(replace(papers, values=apart)))


def test_models_that_are_one_with_a_third_are_one(papers):
    """The text says that both are the headline model."""
    where = "generalist_d_nt_linf_gamma_1_1_1_0.5 and generalist_d_nt_linf_parallel"
    assert found_by(rows_that_share_numbers, papers, where, "the text says")
    assert not found_by(rows_that_share_numbers, papers, "fat and score", "the text says")


def test_what_survives_of_zippers_table8_agrees_with_its_table1a(papers):
    rows = papers.by_row["cifar10", "resnet18", "trades1"]
    survived = rows["zipper table8"]
    assert len(survived) == 6
    assert survived.items() <= rows["zipper table1a"].items()


def test_the_committed_audit_is_current(papers):
    assert (PUBLISHED / "audit.md").read_text() == audit(papers)
    assert all(rule.__doc__ for rule in RULES.values())
