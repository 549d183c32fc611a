"""The simulation of spheres in the page, in a real browser; also the pictures of the README.

``make photographs`` runs this with ``SPHTP_PICTURES`` and puts the pictures into the documentation.
"""

import io
import json
import os
import re
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import pytest
import trio
from PIL import Image

from tests.deadline import within
from tests.web.browser import Browser, needs_chromium, open_browser
from tests.web.test_page import CAUSES, until

pytestmark = [pytest.mark.trio(run=within(150)), pytest.mark.soak, needs_chromium]

PICTURES: Final = os.environ.get("SPHTP_PICTURES")

LARGEST_PICTURE: Final = 1_500_000
"""Bytes of a picture in the documentation."""

# Of each owner the mean place from left to right of the pixels that have its hue.
PLACES: Final = """(() => {
  const { picture } = page, { canvas } = picture;
  const hue = ([r, g, b]) => Math.atan2(Math.sqrt(3) * (g - b), 2 * r - g - b);
  const apart = (a, b) => Math.abs(Math.atan2(Math.sin(a - b), Math.cos(a - b)));
  const owners = [...picture.owners.keys()].map((id) => {
    const ball = picture.ball(id), pen = new OffscreenCanvas(9, 9).getContext("2d");
    pen.drawImage(ball, 0, 0, 9, 9);
    const { data } = pen.getImageData(4, 4, 1, 1);
    return { id, hue: hue(data), sum: 0, count: 0 };
  });
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let n = 0; n < data.length; n += 16) {
    const [r, g, b, alpha] = data.subarray(n, n + 4);
    if (alpha < 250 || Math.max(r, g, b) - Math.min(r, g, b) < 60) continue;
    const far = (one) => apart(one.hue, hue([r, g, b]));
    const owner = owners.reduce((best, one) => far(one) < far(best) ? one : best);
    owner.sum += (n / 4) % width; owner.count++;
  }
  const options = [...document.querySelectorAll("#whose option")];
  const names = Object.fromEntries(options.map((one) => [one.value, one.textContent]));
  return owners.map(({ id, sum, count }) => [names[id], sum / count, count]);
})()"""


@asynccontextmanager
async def program(*arguments: str) -> AsyncIterator[trio.Process]:
    """Run a verb for the length of the block."""
    command = [sys.executable, "-m", "sphtp", *arguments]
    process = await trio.lowlevel.open_process(command, stdout=PIPE)
    try:
        yield process
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def first_line(process: trio.Process) -> dict[str, Any]:
    """Return the first line that a program writes, which is JSON."""
    assert process.stdout is not None
    text = b""
    with trio.fail_after(60):
        while b"\n" not in text:
            chunk = await process.stdout.receive_some()
            assert chunk, "the program ended"
            text += chunk
    fields: dict[str, Any] = json.loads(text.partition(b"\n")[0])
    return fields


@asynccontextmanager
async def simulation(*options: str) -> AsyncIterator[str]:
    """Run two servers and four peers that simulate; yield the address of the page."""
    cluster = ("cluster", "--servers", "2", "--clients", "4", "--web", "0", "--steps", "1000000")
    async with program(*cluster, *options) as process:
        assert process.stdout is not None
        text = ""
        with trio.fail_after(60):
            while not (found := re.search(r"page: (\S+)\n", text)):
                text += (await process.stdout.receive_some()).decode()
        yield found[1]


async def test_spheres_move_in_the_colours_of_their_owners(tmp_path: Path) -> None:
    async with (
        simulation("--loss", "0.05") as url,
        open_browser(tmp_path / "browser") as browser,
    ):
        await browser.look(width=1280, height=1100, still=False)
        await browser.visit(url)
        with trio.fail_after(60):  # Processes start.
            await browser.until("page.picture.owners.size === 4")
        await until(browser, f"/slab-\\d/.test({CAUSES}) && {CAUSES}.includes('packets')")
        await until(
            browser, "document.querySelector('#picture-text').textContent.includes('2,000')"
        )
        await browser.run("page.picture.turn = 0")
        moments = set()
        for _ in range(3):
            step = "Math.min(...[...page.picture.owners.values()].map((one) => one.step))"
            before = await browser.run(step)
            await until(browser, f"{step} > {before}")
            moments.add(await browser.run("page.picture.draw(), page.picture.canvas.toDataURL()"))
        assert len(moments) == 3
        places = {name: (place, count) for name, place, count in await browser.run(PLACES)}
        assert sorted(places, key=lambda name: places[name][0]) == [f"slab-{n}" for n in range(4)]
        assert min(count for _, count in places.values()) > 500
        assert "slab-2" in await browser.run("document.querySelector('#flows').textContent")
        # What makes the steps has metrics, too.
        await browser.run("document.querySelector('#filter').focus()")
        await browser.write("sphtp_simulation_wait_seconds_count")
        await until(browser, "document.querySelectorAll('#metrics tbody tr').length > 0")
        # It turns with the keys.
        await browser.run("document.querySelector('#picture').focus()")
        await browser.press("ArrowLeft")
        assert await browser.run("page.picture.turn") == pytest.approx(-0.12)
        assert browser.complaints == []


async def test_the_pictures_of_the_readme_are_taken(tmp_path: Path) -> None:
    folder = Path(PICTURES or tmp_path)
    async with simulation("--loss", "0.01") as url, open_browser(tmp_path / "browser") as browser:
        await browser.look(width=1280, height=1000, still=False)
        await browser.visit(url)
        with trio.fail_after(60):
            await browser.until("page.picture.owners.size === 4 && page.charts.points.length > 20")
        await until(browser, f"/slab-\\d/.test({CAUSES})")
        page = Image.open(io.BytesIO(await browser.photograph())).convert("RGB")
        page.quantize(256, dither=Image.Dither.NONE).save(folder / "page.png", optimize=True)
        await photograph_moving(browser, folder / "spheres.gif")
    for name in ("page.png", "spheres.gif"):
        assert (folder / name).stat().st_size < LARGEST_PICTURE


async def test_a_client_serves_a_page_of_the_whole_cluster(tmp_path: Path) -> None:
    """Its own spheres are there, too, which no peer but the one that looks receives."""
    ports = ("--pub-port", "0", "--sub-port", "0", "--no-announce")
    async with (
        program("server", "--new", *ports, "--log-format", "json") as server,
        open_browser(tmp_path / "browser") as browser,
    ):
        address = (await first_line(server))["advertised"]
        options = ("--server", address, "--steps", "1000000", "--json", "--web", "0")
        async with program("client", *options) as alone:
            await browser.look(width=1280, height=1000)
            await browser.visit((await first_line(alone))["page"])
            await until(browser, "page.picture.owners.size === 1")
            title = "document.querySelector('h1').textContent"
            await until(browser, f"{title} === 'SphTP 1 peer, 1 server'")
            assert browser.complaints == []


FRAMES: Final = 24
FRAME_TIME: Final = 140  # ms


async def photograph_moving(browser: Browser, file: Path) -> None:
    """Take a moving picture of the spheres, from one side and back."""
    await browser.look(width=1060, height=900, still=False)
    step = "Math.min(...[...page.picture.owners.values()].map((one) => one.step))"
    frames = []
    for number in range(FRAMES):
        before = await browser.run(step)
        await until(browser, f"{step} > {before}")
        swing = -0.5 + 0.35 * (1 - abs(2 * number / FRAMES - 1))
        data = await browser.run(
            f"""(() => {{
  const {{ picture }} = page;
  picture.turn = {swing}; picture.draw();
  const copy = document.createElement("canvas"), pen = copy.getContext("2d");
  copy.width = picture.canvas.width; copy.height = picture.canvas.height;
  pen.fillStyle = "#fff"; pen.fillRect(0, 0, copy.width, copy.height);
  pen.drawImage(picture.canvas, 0, 0);
  return copy.toDataURL("image/png");
}})()"""
        )
        frames.append(Image.open(io.BytesIO(b64decode(data.partition(",")[2]))).convert("RGB"))
    palette = frames[0].quantize(32)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    small[0].save(
        file, save_all=True, append_images=small[1:], duration=FRAME_TIME, loop=0, optimize=True
    )
