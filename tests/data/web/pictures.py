"""Pictures of the server's pages: serves the configs of a museum, has its people start runs, and
captures pages in a headless Chromium.

Usage: pictures.py CONCLAVE EXAMPLES GUESTS OUT. Exits with 3 if there is no Chromium."""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Error, Page, sync_playwright

MUSEUM = Path(__file__).with_name("pictures")
# Bytes of a picture.
LARGEST = 60 << 10
SIZE = {"width": 1280, "height": 800}


class Museum:
    """A server with the museum's configs and people."""

    def __init__(self, conclave: str, examples: Path, guests: Path, folder: Path) -> None:
        self.conclave, self.folder = conclave, folder
        shutil.copytree(MUSEUM, folder / "museum")
        shutil.copytree(examples, folder / "examples")
        for config in (folder / "examples").glob("*.toml"):
            text = config.read_text(encoding="utf-8")
            own = text.replace("../../target/conclave/guests", guests.resolve().as_posix())
            config.write_text(own, encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.tokens = {name: self.token(name, role) for name, role in
                       [("ada", "admin"), ("olga", "operator"), ("petra", "approver")]}
        self.process = self.serve()

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.conclave, *arguments], env=self.environment(), cwd=self.folder,
            capture_output=True, text=True, check=True,
        )

    def environment(self) -> dict:
        return {**os.environ, "CONCLAVE_STATE": str(self.folder / "state")}

    def token(self, name: str, role: str) -> str:
        return self.run("server", "token", "add", name, "--role", role).stdout.strip()

    def serve(self) -> subprocess.Popen:
        configs = ["museum/desk.toml", "fix=examples/overlay.toml", "tour=examples/hostile.toml"]
        process = subprocess.Popen(
            [self.conclave, "serve", *configs, "--quiet", "--listen", self.url.partition("//")[2]],
            env=self.environment(), cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=(self.folder / "serve.log").open("w"),
        )
        for _ in range(600):
            try:
                with urllib.request.urlopen(self.url + "/readyz") as answer:
                    if answer.status == 200:
                        return process
            except OSError:
                pass
            if process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit((self.folder / "serve.log").read_text(encoding="utf-8"))

    def ask(self, who: str, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(
            self.url + "/api/v1" + path, method="GET" if body is None else "POST",
            data=None if body is None else json.dumps(body).encode(),
        )
        request.add_header("Authorization", "Bearer " + self.tokens[who])
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def start(self, who: str, config: str, text: str, task: str | None = None) -> str:
        body = {"config": config, "text": text} | ({"task": task} if task else {})
        return self.ask(who, "/runs", body)["run"]

    def until(self, run: str, is_there) -> None:
        """Waits until the run is as it is wanted."""
        for _ in range(600):
            if is_there(self.ask("ada", f"/runs/{run}")):
                return
            time.sleep(0.1)
        raise SystemExit(f"the run {run} does not come so far: {self.ask('ada', f'/runs/{run}')}")

    def play(self) -> dict[str, str]:
        """Starts the runs, one after the other, and leaves some of them waiting."""
        is_over = lambda run: run["state"] not in ("running", "queued", "asleep")
        runs = {}
        for name, who, config, text, task in [
            ("fix", "olga", "fix", "Make the test pass.", None),
            ("tour", "ada", "tour", "How warm is it in Oslo?", None),
            ("lit", "olga", "desk", "When was Skerryvore first lit?", None),
            ("article", "ada", "desk", "Write a sentence about the Skerryvore light.", "article"),
            ("drafts", "olga", "desk", "Clear the old drafts.", None),
        ]:
            runs[name] = self.start(who, config, text, task)
            self.until(runs[name], is_over)
        for name, who, text in [
            ("year", "olga", "Put the year right in the notes."),
            ("hours", "ada", "Note the opening hours for visitors."),
        ]:
            runs[name] = self.start(who, "desk", text)
            self.until(runs[name], lambda run: self.questions(run["run"]))
        return runs

    def questions(self, run: str) -> list:
        all_of_them = self.ask("ada", "/questions")["questions"]
        return [it for it in all_of_them if it["run"] == run]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def log_in(page: Page, url: str, token: str) -> None:
    page.goto(url + "/runs")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(url + "/runs")


def capture(page: Page, path: Path) -> None:
    """Writes the window as a WebP that is small enough."""
    session = page.context.new_cdp_session(page)
    for quality in (90, 80, 70, 60):
        options = {"format": "webp", "quality": quality}
        picture = base64.b64decode(session.send("Page.captureScreenshot", options)["data"])
        if len(picture) <= LARGEST:
            break
    session.detach()
    path.write_bytes(picture)
    print(path.name, len(picture), file=sys.stderr)


def main() -> int:
    conclave, examples, guests, out = sys.argv[1:]
    named = map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])
    # Without one Playwright uses its own, if that was installed.
    chromium = next(filter(None, named), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        try:
            # Tests may run as root, where Chromium has no sandbox of its own.
            options = ["--no-sandbox", "--hide-scrollbars", "--font-render-hinting=none"]
            browser = playwright.chromium.launch(executable_path=chromium, args=options)
        except Error as error:
            print(f"no Chromium: {str(error).splitlines()[0]}", file=sys.stderr)
            return 3
        museum = Museum(conclave, Path(examples), Path(guests), Path(folder))
        try:
            runs = museum.play()
            page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
            log_in(page, museum.url, museum.tokens["ada"])
            for name, path in [
                ("runs", "/runs"),
                ("run", f"/runs/{runs['article']}"),
                ("inbox", "/inbox"),
                ("rights", "/rights?config=desk"),
            ]:
                page.goto(museum.url + path)
                page.wait_for_load_state("networkidle")
                # Right after the list has moved, the buttons of the inbox are faint.
                page.wait_for_selector(".moving", state="detached")
                capture(page, Path(out) / f"{name}.webp")
        finally:
            museum.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
