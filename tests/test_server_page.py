"""The page at / in a real browser. Skipped where there is none; `LESSRAM_BROWSER` names a Chromium to use."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the server needs lessram[serve]")
pytest.importorskip("playwright.sync_api", reason="no browser: playwright is not installed")

from playwright import sync_api
from serving_http import serving, small_model

from lessram.data.batch import Batch
from lessram.data.formats import Reading
from lessram.data.jsonl import JsonParser
from lessram.data.lines import chunk_of
from lessram.data.schema import ColumnScale, Schema
from lessram.learning.learner import Learner
from lessram.model.model import Model
from lessram.model.spec import Spec

SCHEMA = Schema(
    columns=("late", "carrier", "distance", "remark"),
    kinds=("label", "categorical", "numeric", "text"),
    scales=(ColumnScale("distance", 0.5, 0.25),),
)
ROW = '{"carrier": "EV", "distance": 1.5, "remark": "snow snow and wind"}'


def table_model() -> Model:
    """A model of a table: late with carrier EV and with snow."""
    rng = np.random.default_rng(1)
    lines = []
    for _ in range(2000):
        carrier, snow = str(rng.choice(["EV", "UA", "AA"])), bool(rng.random() < 0.3)
        late = rng.random() < (0.2 + 0.3 * (carrier == "EV") + 0.4 * snow)
        remark = "snow and wind" if snow else "sun and wind"
        lines.append({"late": int(late), "carrier": carrier, "distance": round(rng.random(), 3), "remark": remark})
    model = Model.new(Spec(slots=1 << 12))
    model.reader = msgspec.to_builtins(Reading(schema=SCHEMA))
    batch: Batch = JsonParser(SCHEMA, 1 << 12).parse(chunk_of(b"\n".join(map(msgspec.json.encode, lines)))).batch
    Learner(model).learn(batch, trusted=True)
    return model


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        started = stack.enter_context(sync_api.sync_playwright())
        path = os.environ.get("LESSRAM_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
        try:
            browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"no browser can be started: {str(error).strip().splitlines()[0]}")
        stack.callback(browser.close)
        yield browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test if its script does."""
    context = browser.new_context(viewport={"width": 900, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(request.url))
    yield page
    context.close()
    assert not problems


def bars(page: Any) -> dict[str, str]:
    names = page.locator("#parts th").all_inner_texts()
    return dict(zip(names, page.locator("#parts td.amount").all_inner_texts(), strict=True))


def show(page: Any, name: str) -> None:
    """Keep a picture, for people, where `LESSRAM_SCREENSHOTS` says so."""
    folder = os.environ.get("LESSRAM_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_a_row_of_a_table_is_predicted_and_explained(page: Any, tmp_path: Path) -> None:
    table_model().save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        expected = client.post("/explain", ROW.encode()).body
        page.goto(f"http://127.0.0.1:{client.port}/")
        page.wait_for_function("document.getElementById('row').value")
        assert "trained on a table" in page.inner_text("#model")
        blank = msgspec.json.decode(page.input_value("#row"))
        assert blank == {"carrier": "", "distance": 0.5, "remark": ""}, "to be filled in; numbers at their mean"
        assert not page.is_visible("#answer")
        page.fill("#row", ROW)
        page.get_by_role("button", name="Predict").click()
        page.wait_for_selector("#answer:not([hidden])")
        assert page.inner_text("#probability") == f"{100 * expected['probability']:.4g} %"
        assert bars(page).keys() == {"carrier = EV", "distance = 1.5", "remark: snow", "remark: and", "remark: wind"}
        assert bars(page)["remark: snow"].startswith("+")
        widths = page.locator("#parts .bar span").evaluate_all("bars => bars.map(bar => bar.offsetWidth)")
        assert widths == sorted(widths, reverse=True)
        assert widths[0] > 2 * widths[-1]
        show(page, "table-light")
        page.emulate_media(color_scheme="dark")
        show(page, "table-dark")


def test_text_errors_and_keys(page: Any, tmp_path: Path) -> None:
    small_model().save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        page.goto(f"http://127.0.0.1:{client.port}/")
        page.wait_for_function("document.getElementById('row').value")
        page.fill("#row", "0 " + " ".join(f"{slot}:2" for slot in range(100, 160)))
        page.press("#row", "Control+Enter")
        page.wait_for_selector("#answer:not([hidden])")
        assert page.locator("#parts tr").count() == 41, "40 and what is left"
        page.get_by_role("button", name="Show all 60").click()
        assert page.locator("#parts tr").count() == 60
        page.fill("#row", '{"features": {"a": null}}')
        page.press("#row", "Control+Enter")
        page.wait_for_selector("#wrong:not([hidden])")
        assert page.get_by_role("alert").inner_text().startswith("found None as the value of feature 'a', expected")
        assert not page.is_visible("#answer")
        show(page, "error")


def test_the_page_is_usable_without_a_mouse_and_on_a_narrow_screen(page: Any, tmp_path: Path) -> None:
    table_model().save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        page.set_viewport_size({"width": 360, "height": 640})
        page.goto(f"http://127.0.0.1:{client.port}/")
        page.wait_for_function("document.getElementById('row').value")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "row"
        page.fill("#row", ROW)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("#answer:not([hidden])")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
        within = "cells => cells.every(cell => cell.scrollWidth <= cell.clientWidth)"
        assert page.locator(".amount").evaluate_all(within), "nor does a number out of its column"
        assert page.evaluate("[...document.querySelectorAll('textarea')].every(field => field.labels.length === 1)")
        show(page, "narrow")


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    small_model().save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        answer = client.get("/")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert "http" not in answer.body
