"""Write `osworld/`: eight runs of a desktop agent, in the layout of OSWorld's runner.

    python sample_data/osworld.py

Screens and answers are made up; files, rows and actions are as the runner writes them:
`DOMAIN/TASK/traj.jsonl`, a PNG after each action, `result.txt`. One run ends with an
error, two repeat an action that changes nothing, one gives up.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

FOLDER = Path(__file__).parent / "osworld"
SIZE = (960, 600)
COLORS = 16  # of a PNG
MENU = ("File", "Edit", "View", "Tools", "Help")


class Screen(NamedTuple):
    """What is drawn: a window with fields, the typed texts, and a button."""

    title: str
    fields: tuple[tuple[str, str], ...] = ()
    button: str = "Save"
    note: str = ""
    menu: int = -1  # the open one


class Step(NamedTuple):
    """An answer, its action as pyautogui code or a word, and the screen after it."""

    thought: str
    action: str
    screen: Screen


class Task(NamedTuple):
    """A run: where it is written, what was asked for, how it ended."""

    domain: str
    name: str
    instruction: str
    first: Screen
    steps: Sequence[Step]
    result: float | None = 0.0
    error: str = ""


def _click(x: int, y: int) -> str:
    return f"pyautogui.click({x}, {y})"


def _write(text: str) -> str:
    return f"pyautogui.write({text!r}, interval=0.05)"


def _keys(*names: str) -> str:
    return f"pyautogui.hotkey({', '.join(map(repr, names))})"


def _drag(start: tuple[int, int], stop: tuple[int, int]) -> str:
    moves = f"pyautogui.moveTo{start}", f"pyautogui.dragTo({stop[0]}, {stop[1]})"
    return "\n".join(moves)


def _scroll(amount: int) -> str:
    return f"pyautogui.scroll({amount})"


FIELD = (300, 178)  # the middle of the first field; the next one is 70 below
NEXT = (300, 248)
BUTTON = (820, 520)


def _tasks() -> list[Task]:
    settings = Screen(
        "Settings - Search", (("Search engine", "Example"), ("Language", "English"))
    )
    chosen = settings._replace(fields=(("Search engine", "Orbit"), settings.fields[1]))
    saved = chosen._replace(note="Saved.")
    sheet = Screen(
        "budget.ods - Calc", (("A1", "Item"), ("B1", "Price"), ("B12", "")), "Apply"
    )
    total = sheet._replace(fields=(*sheet.fields[:2], ("B12", "=SUM(B2:B11)")))
    applied = total._replace(note="B12 = 418.50")
    chart = sheet._replace(menu=2)
    shell = Screen("Terminal", (("$", ""),), "Run")
    listed = shell._replace(fields=(("$", "ls ~/photos"),))
    denied = listed._replace(note="ls: cannot open directory: permission denied")
    shown = listed._replace(note="a.png  b.png  c.png")
    open_field = "The field is at the top. I click it."
    return [
        Task(
            "chrome",
            "default-search-engine",
            "Make Orbit the default search engine.",
            settings,
            [
                Step(open_field, _click(*FIELD), settings),
                Step("I type the name.", _write("Orbit"), chosen),
                Step("Now I save.", _click(*BUTTON), saved),
                Step("It is saved.", "DONE", saved),
            ],
            1.0,
        ),
        Task(
            "chrome",
            "clear-history",
            "Clear the history of the last hour.",
            Screen("History", (("Range", "All time"),), "Clear"),
            [
                Step(
                    "I open the range.",
                    _click(*FIELD),
                    Screen("History", (("Range", "All time"),), "Clear", menu=1),
                ),
                Step(
                    "I choose the last hour.",
                    _click(*NEXT),
                    Screen("History", (("Range", "Last hour"),), "Clear"),
                ),
                Step(
                    "I clear it.",
                    _click(*BUTTON),
                    Screen("History", (("Range", "Last hour"),), "Clear", "Cleared."),
                ),
                Step(
                    "Done.",
                    "DONE",
                    Screen("History", (("Range", "Last hour"),), "Clear", "Cleared."),
                ),
            ],
            1.0,
        ),
        Task(
            "chrome",
            "bookmark-bar",
            "Show the bookmark bar.",
            settings,
            [
                Step("The switch may be in the menu.", _click(205, 52), settings),
                Step("It did not open. I click again.", _click(205, 52), settings),
                Step("Once more.", _click(205, 52), settings),
                Step("I wait for it.", "WAIT", settings),
                Step(
                    "I scroll down to look for it.",
                    _scroll(-5),
                    settings._replace(title="Settings - Privacy"),
                ),
                Step(
                    "I cannot find it.",
                    "FAIL",
                    settings._replace(title="Settings - Privacy"),
                ),
            ],
        ),
        Task(
            "libreoffice_calc",
            "sum-of-prices",
            "Put the sum of the prices into B12.",
            sheet,
            [
                Step("I select the cell.", _click(300, 318), sheet),
                Step("I type the formula.", _write("=SUM(B2:B11)"), total),
                Step("I apply it.", _click(*BUTTON), applied),
                Step("The sum is there.", "DONE", applied),
            ],
            1.0,
        ),
        Task(
            "libreoffice_calc",
            "chart-of-prices",
            "Make a chart of the prices with a title.",
            sheet,
            [
                Step(
                    "I select the prices.",
                    _drag(FIELD, NEXT),
                    sheet,
                ),
                Step("I open the menu.", _click(205, 52), chart),
                Step(
                    "I insert a chart.",
                    _click(240, 110),
                    sheet._replace(note="Chart inserted."),
                ),
                Step(
                    "That is the chart.", "DONE", sheet._replace(note="Chart inserted.")
                ),
            ],
            0.5,
        ),
        Task(
            "libreoffice_calc",
            "freeze-first-row",
            "Freeze the first row.",
            sheet,
            [
                Step("I open the menu View.", _click(205, 52), chart),
                Step("I close it with Escape.", _keys("esc"), sheet),
                Step("I open it again.", _click(205, 52), chart),
            ],
            None,
            "Failed to get an answer: the model's server closed the connection",
        ),
        Task(
            "os",
            "list-photos",
            "List the files in the folder photos.",
            shell,
            [
                Step("I click the prompt.", _click(*FIELD), shell),
                Step("I type the command.", _write("ls ~/photos"), listed),
                Step("I run it.", _keys("enter"), shown),
                Step("Three files.", "DONE", shown),
            ],
            1.0,
        ),
        Task(
            "os",
            "list-private-photos",
            "List the files in the folder photos of the guest.",
            shell,
            [
                Step("I type the command.", _write("ls ~/photos"), listed),
                Step("I run it.", _keys("enter"), denied),
                Step("Permission denied. I run it again.", _keys("enter"), denied),
                Step("Still denied. I run it again.", _keys("enter"), denied),
                Step("It is listed.", "DONE", denied),
            ],
        ),
    ]


def _draw(screen: Screen) -> Image.Image:
    """Draw a window on a desktop."""
    picture = Image.new("RGB", SIZE, "#3b6ea5")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(16)
    pen.rectangle((20, 16, 940, 570), "#f4f4f4", "#222222")
    pen.rectangle((20, 16, 940, 40), "#2b2b2b")
    pen.text((32, 18), screen.title, "white", font)
    for at, name in enumerate(MENU):
        pen.text((40 + 72 * at, 44), name, "#222222", font)
    for at, (name, value) in enumerate(screen.fields):
        top = 160 + 70 * at
        pen.text((60, top + 8), name, "#222222", font)
        pen.rectangle((190, top, 640, top + 36), "white", "#888888")
        pen.text((200, top + 8), value, "#111111", font)
    pen.rectangle((760, 500, 880, 540), "#1f7a4d", "#145235")
    pen.text((790, 510), screen.button, "white", font)
    pen.text((60, 512), screen.note, "#a02020", font)
    if screen.menu >= 0:
        left = 40 + 72 * screen.menu
        pen.rectangle((left, 66, left + 190, 166), "white", "#444444")
        for at, name in enumerate(("Chart", "Freeze rows", "Details")):
            pen.text((left + 12, 76 + 28 * at), name, "#222222", font)
    return picture.quantize(COLORS)


def _write_run(task: Task) -> None:
    folder = FOLDER / task.domain / task.name
    folder.mkdir(parents=True)
    _draw(task.first).save(folder / "step_0.png", optimize=True)
    rows = []
    for number, step in enumerate(task.steps, start=1):
        time = f"20261129@09{number // 3:02}{20 * (number % 3):02}"
        name = f"step_{number}_{time}.png"
        _draw(step.screen).save(folder / name, optimize=True)
        is_last = step.action in ("DONE", "FAIL")
        rows.append(
            {
                "step_num": number,
                "action_timestamp": time,
                "action": step.action,
                "response": f"{step.thought}\n```python\n{step.action}\n```",
                "reward": 0,
                "done": is_last,
                "info": {"done": True} if step.action == "DONE" else {},
                "screenshot_file": name,
            }
        )
        rows[0]["instruction"] = task.instruction
    if task.error:
        rows.append({"Error": task.error})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "traj.jsonl").write_text(lines)
    if task.result is not None:
        (folder / "result.txt").write_text(f"{task.result}\n")


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    for each in _tasks():
        _write_run(each)
