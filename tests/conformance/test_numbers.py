"""Every number of the two pages has a test, or a reason for having none; the pages name the tests of the tree."""

from __future__ import annotations

from functools import cache

import pytest

from tests.conformance.carriers import Carrier, by_number, carriers, unknown
from tests.conformance.page import CONFORMANCE, PAGES, REQUIREMENTS, Page, Result, known, page, statements
from tests.house.tree import ROOT, listed

LAST = {
    CONFORMANCE: {"S": 74, "M": 32, "T": 20, "X": 18},
    REQUIREMENTS: {"P": 11, "R": 194, "C": 25, "L": 40},
}
DIGITS = {"P": 2, "R": 3, "C": 2, "L": 2}
REASONS = 5
"""How many requirements may do without a test."""


@cache
def in_tree() -> list[Carrier]:
    return carriers(ROOT)


@pytest.mark.parametrize("on", PAGES, ids=lambda on: on.path)
def test_every_number_has_a_sentence_of_at_most_fifteen_words(on: Page) -> None:
    said = statements(ROOT, on)
    assert said.known == {
        f"{letter}{n:0{DIGITS.get(letter, 1)}}"
        for letter, last in LAST[on].items()
        for n in range(1, last + 1)
    }
    sentences = {**said.said, **said.left_out}
    assert [number for number, words in sentences.items() if len(words.split()) > 15] == []
    assert [n for n in said.known if sum(chapter.has(n) for chapter in on.chapters) != 1] == []


def test_what_has_no_test_says_why() -> None:
    assert set(statements(ROOT, CONFORMANCE).left_out) == {"X9", "X15", "X18"}
    asked = statements(ROOT, REQUIREMENTS)
    without = frozenset(asked.reasons) | frozenset(asked.owed)
    assert (without <= asked.said.keys(), asked.left_out) == (True, {})
    assert asked.reasons.keys().isdisjoint(asked.owed)
    assert len(asked.reasons) <= REASONS
    assert asked.reasons.keys().isdisjoint(by_number(in_tree()))


@pytest.mark.parametrize("on", PAGES, ids=lambda on: on.path)
def test_every_number_has_a_test(on: Page) -> None:
    table = by_number(in_tree())
    bare = [
        f"{number}: {words}" for number, words in statements(ROOT, on).tested.items() if number not in table
    ]
    assert bare == [], listed(bare)


def test_no_test_has_a_number_that_means_nothing() -> None:
    places = unknown(in_tree(), known(ROOT))
    assert places == [], listed(places)


@pytest.mark.parametrize("on", PAGES, ids=lambda on: on.path)
def test_the_page_names_the_tests_of_the_tree(on: Page) -> None:
    good = {carrier.id: Result(1, 1) for carrier in in_tree()}
    assert (ROOT / on.path).read_text(encoding="utf-8") == page(ROOT, on, in_tree(), good), "make pages"
