"""Looks at report pages in headless Chromium through the DevTools protocol (its pipe: messages of JSON
that end with a NUL byte). page.py CHROMIUM SCREENSHOTS PAGE.html ..."""

import base64
import json
import os
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 60

PICTURES = """[...document.images].map(i => ({alt: i.alt, whole: i.complete && i.naturalWidth > 0,
    seen: i.getBoundingClientRect().width > 50 && i.getBoundingClientRect().height > 50}))"""
OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FOCUSED = "document.activeElement.tagName"
CONTRAST = "getComputedStyle(document.body).backgroundColor"


class Browser:
    def __init__(self, program):
        self.home = tempfile.TemporaryDirectory()
        to_browser, self.out = os.pipe()
        self.input, from_browser = os.pipe()

        def wire():
            os.dup2(to_browser, 60)
            os.dup2(from_browser, 61)
            os.dup2(60, 3)
            os.dup2(61, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--remote-debugging-pipe", "--user-data-dir=" + self.home.name,
             "--host-resolver-rules=MAP * ~NOTFOUND", "about:blank"],
            preexec_fn=wire, pass_fds=(3, 4), close_fds=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.rest, self.number, self.events = b"", 0, []

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.input, 1 << 20)
            if not more:
                sys.exit("the browser has gone")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, session=None, **parameters):
        self.number += 1
        question = {"id": self.number, "method": method, "params": parameters}
        if session:
            question["sessionId"] = session
        text = json.dumps(question).encode() + b"\0"
        while text:
            text = text[os.write(self.out, text):]
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def close(self):
        self.ask("Browser.close")
        self.process.wait(PATIENCE_S)


class Page:
    def __init__(self, browser, path):
        self.browser, self.url, self.name = browser, "file://" + os.path.abspath(path), os.path.basename(os.path.dirname(path))
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.complaints = []
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.ask(domain + ".enable")
        self.ask("Page.navigate", url=self.url)
        self.wait_loaded()

    def ask(self, method, **parameters):
        return self.browser.ask(method, self.session, **parameters)

    def value(self, expression):
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def complain(self, text):
        self.complaints.append(f"{self.name}: {text}")

    def wait_loaded(self):
        until = time.time() + PATIENCE_S
        while not any(e.get("method") == "Page.loadEventFired" and e.get("sessionId") == self.session
                      for e in self.browser.events):
            if time.time() > until:
                sys.exit(f"{self.url} does not load")
            self.value("1")

    def judge_events(self):
        """No script error, no refused style or picture, no request but for the page and what lies in it."""
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, p = event["method"], event.get("params", {})
            if method == "Runtime.exceptionThrown":
                self.complain("script error: " + p["exceptionDetails"]["text"])
            elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                self.complain("log: " + p["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = p["request"]["url"]
                if url != self.url and not url.startswith("data:"):
                    self.complain("asks for " + url[:100])

    def judge_pictures(self):
        pictures = self.value(PICTURES)
        for p in pictures:
            if not (p["whole"] and p["seen"]):
                self.complain(f"a picture cannot be seen: {p['alt']}")
        return len(pictures)

    def judge_tree(self):
        """A name for every picture; in every table as many named column headers as columns."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        by_id = {n["nodeId"]: n for n in nodes}

        def role(n):
            return n.get("role", {}).get("value", "")

        def named(n):
            return bool(n.get("name", {}).get("value", "").strip())

        def below(n, stop=()):
            for i in n.get("childIds", []):
                child = by_id.get(i)
                if child:
                    yield child
                    if role(child) not in stop:
                        yield from below(child, stop)

        images = [n for n in nodes if role(n) in ("img", "image")]
        tables = [n for n in nodes if role(n) == "table"]
        for n in images:
            if not named(n):
                self.complain("a picture without a name in the accessibility tree")
        for table in tables:
            if not named(table):
                self.complain("a table without a name")
            headers = [n for n in below(table) if role(n) == "columnheader"]
            columns = 0
            for row in (n for n in below(table) if role(n) == "row"):
                columns = max(columns, sum(role(n) in ("cell", "gridcell", "rowheader", "columnheader") for n in below(row)))
            if len(headers) != columns or not all(map(named, headers)):
                self.complain(f"a table of {columns} columns has {sum(map(named, headers))} named headers of {len(headers)}")
        return len(images), len(tables)

    def judge_keyboard(self):
        self.value("window.scrollTo(0, 0)")
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        if self.value(FOCUSED) == "BODY":
            self.complain("the Tab key goes nowhere")

    def shoot(self, folder):
        grounds = set()
        for width in (1280, 400):
            for scheme in ("light", "dark"):
                self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
                self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                if self.value(OVERFLOW) > 0:
                    self.complain(f"{self.value(OVERFLOW)} pixels too wide on a screen of {width}")
                grounds.add((scheme, self.value(CONTRAST)))
                picture = base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"])
                if len(picture) < 20000:
                    self.complain(f"a screenshot of {len(picture)} bytes")
                with open(os.path.join(folder, f"{self.name}-{width}-{scheme}.png"), "wb") as file:
                    file.write(picture)
        self.ask("Emulation.clearDeviceMetricsOverride")
        if len({ground for _, ground in grounds}) != 2:
            self.complain("light and dark look alike")


def main():
    program, folder, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    browser, bad = Browser(program), 0
    for path in paths:
        page = Page(browser, path)
        page.judge_keyboard()
        page.shoot(folder)
        page.value(OPEN_ALL)
        n_pictures = page.judge_pictures()
        n_images, n_tables = page.judge_tree()
        page.judge_events()
        if n_images != n_pictures:
            page.complain(f"{n_pictures} pictures, {n_images} in the accessibility tree")
        if not n_tables:
            page.complain("no table")
        print(f"{page.name}: {n_pictures} pictures, {n_tables} tables, {len(page.complaints)} complaints")
        print("\n".join(page.complaints))
        bad += len(page.complaints)
    browser.close()
    sys.exit(bad > 0)


main()
