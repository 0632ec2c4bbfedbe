"""How checks are shown: in a line each, in a table, as a frame and as plain data."""

from __future__ import annotations

from rounddiag.checks import Check, Checks

HOSTILE = "<script>alert(1)</script>"
FOUND = Checks(
    (
        Check(name="first holds", status="passed", field="a"),
        Check(
            name="second lacks", status="not testable", detail="needs `b`", field="b"
        ),
        Check(
            name="third breaks",
            status="failed",
            detail=f"1 token {HOSTILE}",
            field="c",
            samples=(3,),
        ),
    )
)


def test_it_is_a_sequence_by_status() -> None:
    assert (len(FOUND), FOUND[0].name, FOUND[1:][0].name) == (
        3,
        "first holds",
        "second lacks",
    )
    assert [check.field for check in FOUND] == ["a", "b", "c"]
    assert [check.field for check in FOUND.failed] == ["c"]
    assert [check.field for check in FOUND.passed] == ["a"]
    assert [check.field for check in FOUND.not_testable] == ["b"]


def test_failed_checks_are_shown_first_in_a_line_each() -> None:
    assert repr(FOUND) == (
        "Checks(failed=1, passed=1, not_testable=1)\n"
        f"failed: third breaks: 1 token {HOSTILE}\n"
        "passed: first holds\n"
        "not testable: second lacks: needs `b`"
    )
    assert repr(Checks(())) == "Checks(failed=0, passed=0, not_testable=0)"


def test_the_table_is_escaped_and_in_the_same_order() -> None:
    html = FOUND._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    places = [html.index(name) for name in ("third", "first", "second")]
    assert places == sorted(places)


def test_the_frame_has_a_row_a_check() -> None:
    frame = FOUND.as_frame()
    assert list(frame.columns) == [
        *("name", "status", "kind", "cause", "detail", "field", "samples")
    ]
    assert frame["status"].tolist() == ["passed", "not testable", "failed"]
    assert frame["samples"].tolist() == [(), (), (3,)]
    assert Checks(()).as_frame().columns.tolist() == list(frame.columns)
