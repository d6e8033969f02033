"""A headless Chromium that looks at pages: pictures as arrays, and a mouse."""

from __future__ import annotations

import functools
import io
import shutil
import threading
import time
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
PATIENCE = 120.0
"""Seconds for a page to draw: software renders it, on a machine that others use."""


@contextmanager
def chromium(width=900, height=600):
    """A browser, or a skip that says what is missing."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium and chromedriver here (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for each in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as browser:
        yield Browser(browser)


_WITHOUT_NOTIFICATIONS = """
const style = document.createElement("style");
style.textContent = "[class*=Notification] { display: none !important }";
document.head.appendChild(style);
"""


class Browser:
    """A page that is looked at."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, url, plays=False):
        """Open a page, and wait until there is a scene, which comes to rest unless it plays."""
        self.driver.get(url)
        self.until(lambda: self.driver.execute_script("return document.querySelectorAll('canvas').length") > 0)
        # What viser says of rendering by software would cover the scene.
        self.driver.execute_script(_WITHOUT_NOTIFICATIONS)
        if plays:
            self.until(lambda: self.picture().std() > 2.0)
        else:
            self.still()
        return self

    def picture(self):
        """(height, width, 3) what is seen, bytes."""
        from PIL import Image

        shown = Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")
        return np.asarray(shown).astype(int)

    def still(self, seconds=0.5):
        """The picture once it has something in it and no longer changes."""
        begin, last = time.monotonic(), self.picture()
        while time.monotonic() < begin + PATIENCE:
            time.sleep(seconds)
            seen = self.picture()
            if np.abs(seen - last).max() < 8 and seen.std() > 2.0:
                return seen
            last = seen
        raise AssertionError("the page does not come to rest")

    def press_play(self):
        """Press the button of the bar at the bottom of a page that plays: the first of the lowest."""
        buttons = self.driver.find_elements("tag name", "button")
        max(buttons, key=lambda button: (button.rect["y"], -button.rect["x"])).click()

    def save(self, path):
        """Write what is seen, once it is at rest, as a small PNG."""
        from PIL import Image

        shown = Image.fromarray(self.still().astype(np.uint8)).quantize(256, dither=Image.Dither.NONE)
        shown.save(path, optimize=True)

    def until(self, holds, what=lambda: ""):
        """Wait for something; `what` says how it stands if it does not come true."""
        begin = time.monotonic()
        while not self._holds(holds):
            assert time.monotonic() < begin + PATIENCE, f"it does not come true: {what()}"
            time.sleep(0.1)

    def _holds(self, holds):
        from selenium.common.exceptions import WebDriverException

        try:
            return holds()
        except WebDriverException:  # the page is being loaded, or too busy to be looked at
            return False

    def errors(self):
        """What the console has of errors, but for those of earlier pages whose server is gone."""
        told = [each["message"] for each in self.driver.get_log("browser") if each["level"] == "SEVERE"]
        return [each for each in told if "ERR_CONNECTION_REFUSED" not in each]


@contextmanager
def served(folder):
    """A folder over HTTP: its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
