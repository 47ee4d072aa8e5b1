from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.actors.setup.jsonc import Malformed, Unsplicable, parse, with_member, without_member
from tests.tables import each_row

PATH = ("servers", "ours")
ENTRY = {"command": "x", "args": ["serve", "ä"], "inner": {"n": 1}}

TEXTS = [
    "{}",
    "{ }",
    "{\n}",
    "{ // nothing yet\n}\n",
    '{"a": 1}',
    '{"a":1,}',
    '{"servers": {}}',
    '{"a": 1, "servers": {}}',
    '{"servers":{"b":2}}',
    '{"servers": {"b": 2,},}',
    '{\n  "a": 1\n}',
    '{\n  "a": 1, // one\n}\n',
    '{\n  "a": 1 // one\n}\n',
    '{\n  "a": 1 /* one\n  two */\n}\n',
    '{\n\t"servers": {\n\t\t"b": 2 // the b\n\t}, "c": 3\n}\n',
    '{\r\n    "servers": {\r\n        "b": [1, 2]\r\n    }\r\n}\r\n',
    '{\r\n  "a": 1 // one\r\n}',
    '{\n  "servers": {\n  }\n}\n',
    '{\n  "servers": {},\n  "z": "}{//"\n}\n\n',
    '\ufeff{"a": 1}',
    '{ "a": 1, "a": 2, "servers": {"b": 1}, "servers": {"c": 2} }',
    '{"a": {"servers": {"ours": 1}}}',
]


@pytest.mark.covers("R172")
@each_row("text", TEXTS)
def test_what_was_put_in_and_taken_out_leaves_every_byte(text: str) -> None:
    made = with_member(text, PATH, ENTRY, comments=True)
    before, after = (parse(each, comments=True) for each in (text, made))
    assert after == {**before, "servers": {**before.get("servers", {}), "ours": ENTRY}}
    assert without_member(made, PATH, comments=True) == text


def test_a_file_that_was_made_for_it_is_gone_with_it() -> None:
    made = with_member(None, PATH, ENTRY, comments=False)
    assert json.loads(made) == {"servers": {"ours": ENTRY}}
    assert without_member(made, PATH, comments=False) is None


blanks = st.sampled_from(["", " ", "\n", "\n  ", "\r\n\t", " // c\n", "/* , } */", " /* a\n b */ "])
scalars = st.sampled_from(["1", "-0.5e3", "null", "true", '"\\u00e4 \\" // x"', '"/* y */"', '""'])
keys = st.sampled_from(["servers", "ours", "b", "", "ä"]).map(lambda key: json.dumps(key))


@st.composite
def objects(draw: st.DrawFn, depth: int = 3) -> str:
    value = st.one_of(scalars, objects(depth - 1)) if depth else scalars
    text = draw(blanks)
    names = draw(st.lists(keys, max_size=3, unique=True))
    for place, key in enumerate(names):
        text += ("," if place else "") + draw(blanks) + key + draw(blanks) + ":" + draw(value) + draw(blanks)
    return f"{{{text}{draw(st.sampled_from([',', ''])) if names else ''}{draw(blanks)}}}"


@settings(deadline=None)
@given(objects())
def test_any_text_comes_back_to_the_byte_or_is_left_alone(text: str) -> None:
    try:
        made = with_member(text, PATH, ENTRY, comments=True)
    except Unsplicable:
        assert not isinstance(parse(text, comments=True).get("servers", {}), dict)
        return
    if "ours" not in parse(text, comments=True).get("servers", {}):
        assert without_member(made, PATH, comments=True) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            '{\n  "servers": {\n    "ours": {"x": 1},\n    "b": 2\n  }\n}\n',
            '{\n  "servers": {\n    "b": 2\n  }\n}\n',
        ),
        ('{"servers":{"ours":{"x":1},"b":2}}', '{"servers":{"b":2}}'),
        ('{\n "servers": {\n  "b": 2,\n  "ours":\n  {}\n }\n}', '{\n "servers": {\n  "b": 2\n }\n}'),
        ('{"servers": {"ours": 1}, "b": 2}', '{"servers": {}, "b": 2}'),
        ('{"servers": {"a": 1, /* was it */ "ours": 1}}', '{"servers": {"a": 1 /* was it */}}'),
    ],
)
def test_what_somebody_rewrote_is_taken_out_with_one_comma(text: str, left: str) -> None:
    assert without_member(text, PATH, comments=True) == left


def test_another_value_takes_the_place_of_the_old_one() -> None:
    text = '{\n  "servers": {\n    "ours": {\n      "x": 1\n    }, // mine\n    "b": 2\n  }\n}\n'
    made = with_member(text, PATH, {"y": 2}, comments=True)
    assert made == text.replace('"x": 1', '"y": 2')


@pytest.mark.covers("R173")
@each_row(
    "text",
    [
        "",
        " ",
        "{",
        '{"a"}',
        '{"a":}',
        "{a: 1}",
        '{"a": 1 "b": 2}',
        "[1 2]",
        "[,]",
        "{,}",
        '{"a": NaN}',
        '{"a": 01}',
        '{"a": "\n"}',
        '{"a": "x}',
        "{} {}",
        "{'a': 1}",
        '{"a": 1,, "b": 2}',
        "/* {}",
        "[" * 300,
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(text: str) -> None:
    with pytest.raises(Malformed, match=r"line \d+, column \d+: expected "):
        parse(text, comments=True)


@pytest.mark.parametrize("text", ['{"a": 1,}', "[1,]", "{} // x", "/* x */ {}"])
def test_a_file_of_plain_json_has_no_comments(text: str) -> None:
    assert parse(text, comments=True) is not None
    with pytest.raises(Malformed):
        parse(text, comments=False)


@pytest.mark.parametrize("text", ['{"servers": 3}', "[]", '{"servers": []}'])
def test_a_place_that_holds_no_object_is_left_alone(text: str) -> None:
    with pytest.raises(Unsplicable, match="holds no object"):
        with_member(text, PATH, ENTRY, comments=True)
