"""The audit finds what is known to be odd, by rules that would find more."""

import pandas as pd
import pytest
from conftest import ROOT

from harness.audit import RULES, aa_above_a_component, audit, outliers, rows_that_differ
from harness.audit import union_is_not_the_mean as union

PUBLISHED = ROOT / "reports" / "published"


@pytest.fixture(scope="module")
def values():
    return pd.read_csv(PUBLISHED / "values.csv")


@pytest.mark.parametrize(
    ("rule", "where", "found"),
    [
        (
            aa_above_a_component,
            "cvpr23 table3, cifar100, resnet18, at",
            "AA 23.87 above APGD_t 21.98",
        ),
        (
            aa_above_a_component,
            "zipper table5, cifar10, resnet18, at_l2",
            "AA 62.71 above APGD_ce 62.19",
        ),
        (
            aa_above_a_component,
            "zipper table1b, cifar10, wrn32_10, at",
            "AA 48.17 above APGD_t 46.34",
        ),
        (aa_above_a_component, "zipper table4, tinyimagenet, resnet18, trades1", "AA 17.76"),
        (union, "plusplus table2, cifar100, resnet18, generalist_d_linf_l2", "31.240"),
        (union, "plusplus table1, cifar10, resnet18, agr", "50.855"),
        (union, "plusplus table3, imagenet, wrn50_2, generalist_d_linf_l2", "51.200"),
        (rows_that_differ, "cifar10, resnet18, at_half", "NAT 87.84 / 87.34"),
        (rows_that_differ, "cifar10, resnet18, iat", "NAT 84.60 / 83.70"),
        (rows_that_differ, "cifar10, wrn32_10, iat", "PGD20 50.55 / 48.85"),
        (rows_that_differ, "cifar10, wrn32_10, fat", "permuted"),
        (rows_that_differ, "generalist_d_nt_linf_lr_nt0.1_at0.01", "AA 46.37 / 46.07"),
        (outliers, "plusplus table2, cifar100, resnet18, iat", "PGD20_2 55.76, AA_2 28.73"),
        (outliers, "plusplus table4, cifar10-p, msd", "48.03"),
    ],
)
def test_known_cases(rule, where, found, values):
    assert any(where in one.where and found in one.found for one in rule(values))


def test_permuted_rows_between_zipper_and_cvpr(values):
    permuted = [one for one in rows_that_differ(values) if "permuted" in one.found]
    assert len(permuted) >= 8


def test_a_consistent_table_is_not_accused(values):
    clean = values[(values.document == "cvpr23") & (values.artefact == "table1a")]
    assert aa_above_a_component(clean) == []
    assert rows_that_differ(clean) == []


def test_a_new_contradiction_would_be_found(values):
    row = dict(document="new", artefact="t", dataset="d", arch="a", method="m", std=None)
    added = pd.DataFrame(
        [{**row, "metric": "AA", "value": 50.0}, {**row, "metric": "APGD_t", "value": 49.0}]
    )
    found = aa_above_a_component(pd.concat([values, added]))
    assert any(one.where.startswith("new t") for one in found)


def test_the_committed_audit_is_current(values):
    assert (PUBLISHED / "audit.md").read_text() == audit(values)
    assert all(rule.__doc__ for rule in RULES.values())
