#!/bin/sh
# A widget's NaN reaches the page as null or as the text "nan", by what else the message holds.
#
# Guess, before the run: an error in the kernel, as the JSON packer is called with allow_nan=False.
#
# Versions: jupyter_client 8.10.0 without orjson and with orjson 3.13.0; anywidget 0.11.0,
# ipywidgets 8.1.9.
#
# What is so: three answers and no error. With orjson in the kernel's environment NaN and infinity
# become null. Without orjson they become the texts "nan" and "inf". With orjson, where the same
# message also holds something that orjson refuses (a key that is a number, an integer above 64
# bit), the whole message takes the other way, and its NaN is a text again. The page cannot send it
# back: neither null nor the text is taken by a Float trait.
#
# Who meets it: a widget that draws log-probs of which some are missing. In JavaScript null counts
# as 0 in arithmetic and in most scales (a missing mismatch is drawn as perfect agreement), and
# "nan" as a category of its own. It works on the developer's machine and changes with a package
# that nobody imports, or with a table whose keys are round numbers.
#
# Output seen:
#   without orjson: {"x": ["nan", 1.0, "inf"]}
#   with orjson: {"x": [null, 1.0, null]}
#   with orjson, a number as key: {"x": ["nan"], "by_round": {"1": 0.5}}
#   widget: mean null
#   back from the page: null TraitError, "nan" TraitError
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q jupyter_client==8.10.0 anywidget==0.11.0 ipywidgets==8.1.9 || exit 3
"$tmp/venv/bin/pip" install -q --target "$tmp/extra" orjson==3.13.0 || exit 3
cat >"$tmp/pack.py" <<'PY'
import importlib.util
import json
import sys

import anywidget
import traitlets
from jupyter_client.session import Session

nan, infinite = float("nan"), float("inf")


def sent(content):
    return json.loads(Session().pack(content))


class View(anywidget.AnyWidget):
    _esm = "export default { render() {} }"
    mean = traitlets.Float(nan).tag(sync=True)


def error_of(value):
    try:
        View().set_state({"mean": value})
    except Exception as error:
        return type(error).__name__
    return "no error"


if len(sys.argv) == 1:
    sys.exit()
assert (importlib.util.find_spec("orjson") is not None) == (sys.argv[1] == "with")
plain = sent({"x": [nan, 1.0, infinite]})
print(f"{sys.argv[1]} orjson: {json.dumps(plain)}")
if sys.argv[1] == "without":
    assert plain == {"x": ["nan", 1.0, "inf"]}
    sys.exit()
assert plain == {"x": [None, 1.0, None]}
keyed = sent({"x": [nan], "by_round": {1: 0.5}})
print("with orjson, a number as key:", json.dumps(keyed))
assert keyed == {"x": ["nan"], "by_round": {"1": 0.5}}
assert sent({"x": [nan], "seed": 2**70})["x"] == ["nan"]
mean = sent(View().get_state(["mean"]))["mean"]
print("widget: mean", json.dumps(mean))
assert mean is None
null, text = error_of(None), error_of("nan")
print(f'back from the page: null {null}, "nan" {text}')
assert null == text == "TraitError"
PY
"$tmp/venv/bin/python" "$tmp/pack.py" || exit 3
"$tmp/venv/bin/python" -W ignore "$tmp/pack.py" without || exit 1
PYTHONPATH="$tmp/extra" "$tmp/venv/bin/python" -W ignore "$tmp/pack.py" with || exit 1
