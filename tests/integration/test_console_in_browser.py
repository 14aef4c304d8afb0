"""The console in a real browser: every page, in both themes, wide and narrow, with hostile data.

One broker, one console process and one Chromium serve all tests of this file. What axe or
`page_checks.js` finds, an error in the browser's console, or a violation of the content security
policy fails the test.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pytest
from starlette.routing import Match, Route

from tests.support.axe import violations
from tests.support.broker_process import TIDELOG, BrokerProcess, dies_with_us
from tidelog.client import (
    AclBinding,
    AclOperation,
    QuotaEntity,
    ResourceType,
    ScramMechanism,
    ScramUpsertion,
)
from tidelog.client.blocking.admin import Admin
from tidelog.client.blocking.consumer import Consumer
from tidelog.client.blocking.producer import Producer
from tidelog.client.consumer.offset_and_metadata import OffsetAndMetadata
from tidelog.tools.console.application import console_application
from tidelog.tools.console.settings import ConsoleSettings
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Dialog, Page, ViewportSize

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the path"),
]

CHECKS = (Path(__file__).parent.parent / "support" / "page_checks.js").read_text()
HOSTILE = '"><img src=x onerror="window.hit=1"><script>window.hit=2</script>{{7*7}}'
LONG = "a-topic-with-a-very-long-name." * 8 + "end"
WIDE: ViewportSize = {"width": 1280, "height": 900}
NARROW: ViewportSize = {"width": 390, "height": 844}
PATIENCE_MS = 30_000


@dataclass
class Browsing:
    """A page of the browser, and what the browser complained about."""

    page: Page
    base: str
    broker: BrokerProcess
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._on_dialog)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{self.page.url}: {message.text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def go(self, path: str, status: int = 200) -> None:
        answer = self.page.goto(self.base + path)
        assert answer is not None
        assert answer.status == status, (path, self.text())

    def text(self) -> str:
        return self.page.inner_text("main")

    def problems(self) -> list[str]:
        """Of this page wide and narrow, in both themes."""
        found: dict[str, None] = {}
        for size in (WIDE, NARROW):
            self.page.set_viewport_size(size)
            found |= dict.fromkeys(self.page.evaluate(CHECKS))
            for theme in ("dark", "light"):
                self.page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
                found |= dict.fromkeys(violations(self.page, contrast_only=theme == "dark"))
        self.page.set_viewport_size(WIDE)
        return list(found)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with hostile names and records in it."""
    directory = tmp_path_factory.mktemp("browsed")
    with BrokerProcess(
        directory,
        {
            "tidelog.metrics.listener": "http://127.0.0.1:0",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "offsets.topic.num.partitions": "2",
        },
    ) as broker:
        properties = {"bootstrap.servers": broker.bootstrap, "client.id": HOSTILE}
        with Admin(properties) as admin:
            fill(admin, properties)
        alive = Consumer(
            properties,
            group_id="alive",
            auto_offset_reset="earliest",
            max_poll_interval_ms=3_600_000,
        )
        writing = Producer(properties, transactional_id=HOSTILE, transaction_timeout_ms=900_000)
        with alive, writing:
            alive.subscribe(["orders"])
            alive.poll(timeout=10.0)
            writing.init_transactions()
            writing.begin_transaction()
            writing.send("ledger", b"open").result()
            yield broker
            writing.abort_transaction()


def fill(admin: Admin, properties: dict[str, str]) -> None:
    topics = ["orders", LONG, "ledger", "shop.dead-letter"]
    for made in admin.create_topics(topics).values():
        made.get()
    hostile = HOSTILE.encode()
    with Producer(properties) as producer:
        for topic in ("orders", LONG):
            for value in (hostile, b'{"customer": {"id": 42}}', b"\x00\xff", None):
                producer.send(topic, value, key=hostile, headers=[(HOSTILE, hostile)])
        for reason in (hostile, b"is no JSON object", b"is not UTF-8"):
            told = {"reason": reason, "source": hostile, "topic": hostile}
            headers = [(f"dead-letter.{name}", value) for name, value in told.items()]
            producer.send("shop.dead-letter", hostile, key=hostile, headers=headers)
    place = TopicPartition("orders", 0)
    for group in (HOSTILE, "billing", "g" * 240):
        admin.alter_group_offsets(group, {place: OffsetAndMetadata(1, None, HOSTILE)})
    binding = AclBinding(ResourceType.TOPIC, "orders", f"User:{HOSTILE}", AclOperation.READ)
    assert admin.create_acls([binding])[binding].is_ok
    user = ScramUpsertion(HOSTILE, ScramMechanism.SCRAM_SHA_256, "secret")
    assert admin.alter_user_scram_credentials([user])[HOSTILE].is_ok
    entity = QuotaEntity.of({"user": HOSTILE, "client-id": HOSTILE})
    assert admin.alter_client_quotas({entity: {"producer_byte_rate": 1e9}})[entity].is_ok


@contextmanager
def console(served: BrokerProcess, *options: str) -> Iterator[str]:
    """The address of a console that may write."""
    command = [*TIDELOG, "console", "-b", served.bootstrap, "--listen", "http://127.0.0.1:0"]
    command += ["--write", *options]
    process = subprocess.Popen(dies_with_us(command), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split("console=")[1].split()[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def browsing(served: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    pipelines = tmp_path_factory.mktemp("pipelines") / "shop"
    from tidelog.pipeline.declaration.example import write_example

    write_example(pipelines, served.bootstrap)
    found = re.search(r"metrics=(\S+)", served.stdout_path.read_text())
    assert found is not None
    options = ["--metrics", found[1], "--pipelines", str(pipelines.parent)]
    options += ["--logs", str(served.data_directory)]
    with console(served, *options) as base, playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        context = chromium.new_context(viewport=WIDE, color_scheme="light")
        yield Browsing(context.new_page(), base, served)
        chromium.close()


@pytest.fixture(autouse=True)
def nothing_to_complain_about(browsing: Browsing) -> Iterator[None]:
    browsing.complaints.clear()
    browsing.page.set_viewport_size(WIDE)
    yield
    assert not browsing.complaints


GROUP = quote(HOSTILE, safe="")
LOG = "dir=0&folder=orders-0"
PAGES = (
    "/",
    "/brokers",
    "/brokers/0?q=log.retention",
    "/brokers/0/configs/log.retention.ms",
    "/events",
    "/explain",
    "/explain?kind=partition&topic=orders&partition=0",
    "/explain?kind=record&topic=orders&partition=0&offset=0",
    "/explain?kind=group&group=alive",
    f"/explain?kind=group&group={GROUP}",
    f"/explain?kind=txn&id={GROUP}",
    "/topics?internal=1",
    f"/topics?q={GROUP}",
    "/topics/+new",
    "/topics/orders",
    f"/topics/{LONG}",
    f"/topics/{LONG}/configs?q=retention",
    "/topics/orders/configs/retention.ms",
    "/topics/orders/partitions",
    "/topics/orders/empty",
    "/topics/orders/delete",
    "/messages",
    "/messages?topic=orders",
    f"/messages?topic={LONG}&value-decoder=hex",
    "/messages?topic=orders&filter=value.customer.id+%3D%3D+42",
    "/messages/+tail?topic=orders",
    "/messages/+record?topic=orders&partition=0&offset=0",
    "/messages/+produce?topic=orders",
    "/messages/+import?topic=orders",
    "/pipelines",
    "/pipelines/one?folder=shop",
    "/pipelines/letters",
    "/pipelines/letters?topic=shop.dead-letter",
    "/segments",
    f"/segments/log?{LOG}",
    f"/segments/map?{LOG}&segment=0",
    f"/segments/batch?{LOG}&segment=0&position=0",
    f"/segments/entries?{LOG}&segment=0&kind=index",
    f"/segments/entries?{LOG}&segment=0&kind=timeindex",
    f"/segments/check?{LOG}",
    "/groups",
    f"/groups/one?group={GROUP}",
    "/groups/one?group=alive",
    "/transactions",
    f"/transactions/one?id={GROUP}",
    "/transactions/abort?topic=ledger&partition=0&offset=0",
    "/transactions/hanging",
    "/transactions/producers?topic=ledger&partition=0",
    "/transactions/producers?topic=orders&partition=0",
    "/acls",
    "/users",
    "/quotas",
    "/settings",
)
# Parts of pages, files to keep, and the page of those who must log in, which has a test of its own.
NO_PAGES = {
    "/static/{digest}/{name}",
    "/overview/live",
    "/events/live",
    "/topics/+live",
    "/topics/{topic}/live",
    "/messages/+live",
    "/messages/+bytes",
    "/messages/+export",
    "/pipelines/one/live",
    "/groups/live",
    "/groups/one/live",
    "/login",
}
MISSING_PAGES = ("/no/such/page", "/topics/no-such-topic")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_fits_and_runs_nothing_that_came_with_data(
    browsing: Browsing, path: str
) -> None:
    browsing.go(path)
    assert not browsing.problems()


def test_every_page_of_the_console_is_among_them() -> None:
    asked = [unquote(path.partition("?")[0]) for path in PAGES]
    scopes = [{"type": "http", "method": "GET", "path": path} for path in asked]
    application = console_application(ConsoleSettings({"bootstrap.servers": "127.0.0.1:1"}))
    routes = [each for each in application.routes if isinstance(each, Route)]
    pages = {each.path: each for each in routes if "GET" in (each.methods or ())}
    assert pages.keys() >= NO_PAGES
    for path in pages.keys() - NO_PAGES:
        assert any(pages[path].matches(scope)[0] == Match.FULL for scope in scopes), path


def test_the_page_to_log_in_is_accessible_and_lets_its_user_in(
    browsing: Browsing, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("a long password\n")
    options = ["--user", "ops", "--password-file", str(password)]
    chromium = browsing.page.context.browser
    assert chromium is not None
    with console(browsing.broker, *options) as base, chromium.new_context(viewport=WIDE) as context:
        login = Browsing(context.new_page(), base, browsing.broker)
        page = login.page
        login.go("/topics")
        assert page.url.startswith(f"{base}/login")
        assert not login.problems()
        page.get_by_label("User").fill(HOSTILE)
        page.get_by_label("Password").fill("a wrong password")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").wait_for()
        assert not login.problems()
        login.complaints.clear()  # the browser tells of the refusal
        page.get_by_label("User").fill("ops")
        page.get_by_label("Password").fill("a long password")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/topics")
        assert not login.problems()
        assert not login.complaints


@pytest.mark.parametrize("path", MISSING_PAGES)
def test_a_page_that_is_not_there_is_a_page_too(browsing: Browsing, path: str) -> None:
    browsing.go(path, 404)
    assert not browsing.problems()
    browsing.complaints.clear()  # the browser tells of the 404


def test_axe_and_our_own_checks_find_what_is_planted(browsing: Browsing) -> None:
    browsing.go("/settings")
    browsing.page.evaluate(
        """() => {
            const button = document.createElement("button");
            const text = document.createElement("p");
            text.textContent = "hard to read";
            text.style.color = "color-mix(in srgb, var(--ground) 70%, var(--text))";
            const wide = document.createElement("h1");
            wide.textContent = "a second one";
            wide.style.width = "2000px";
            document.querySelector("main").append(button, text, wide);
        }"""
    )
    found = "\n".join(browsing.problems())
    assert "button-name (critical): <button>" in found
    assert found.count("color-contrast (serious)") == 2, "in both themes"
    assert "not one h1" in found
    assert "px too wide at 390 px" in found
    assert "px too wide at 1280 px" in found


def test_pages_of_links_are_followed_from_the_lists(browsing: Browsing) -> None:
    """Where there are ids of a run in the address, one comes there by a click."""
    page = browsing.page
    for path, selector in (
        ("/segments", "main table a, main li a"),
        ("/pipelines", "main table a, main li a, main h2 a"),
    ):
        browsing.go(path)
        for _ in range(2):  # to one of them, and on to a part of it
            page.locator(selector).first.click()
            page.wait_for_load_state("load")
            assert not browsing.problems(), page.url


def test_hostile_names_and_records_are_shown_as_they_are(browsing: Browsing) -> None:
    browsing.go("/groups")
    assert "<img src=x onerror=" in browsing.text()
    browsing.go("/messages?topic=orders")
    assert "<script>window.hit=2</script>{{7*7}}" in browsing.text()
    browsing.go(f"/groups/one?group={GROUP}")
    assert "<img src=x onerror=" in browsing.page.inner_text("h1")
    for path, what in (
        ("/groups/one?group=alive", "client id and member id"),
        ("/transactions", "transactional id"),
        ("/acls", "principal"),
        ("/users", "user"),
        ("/quotas", "user and client id"),
        ("/events?name=topic-created", "client id"),
        ("/pipelines/letters?topic=shop.dead-letter", "reason, source and topic"),
    ):
        browsing.go(path)
        assert "<img src=x onerror=" in browsing.text(), what
    assert browsing.page.evaluate("window.hit") is None


def test_a_topic_is_made_changed_and_deleted_with_the_forms(browsing: Browsing) -> None:
    page = browsing.page
    browsing.go("/topics")
    page.get_by_role("link", name="New topic").click()
    page.get_by_label("Name").fill("by-hand")
    page.get_by_label("Partitions").fill("2")
    page.get_by_label("Settings").fill("retention.ms=3600000")
    page.get_by_role("button", name="Create").click()
    page.get_by_text("Topic by-hand is there.").wait_for()
    page.locator("main").get_by_role("link", name="Settings").click()
    page.get_by_role("link", name="retention.ms", exact=True).click()
    page.get_by_label("New value").fill("7200000")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("retention.ms is now 7200000.").wait_for()
    page.get_by_role("link", name="Delete topic").click()
    page.get_by_label("Type the topic's name").fill("by-hand")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("Topic by-hand is deleted.").wait_for()


def test_a_record_is_produced_with_the_form_and_found(browsing: Browsing) -> None:
    page = browsing.page
    browsing.go("/messages/+produce?topic=orders")
    page.locator("#key-form").select_option("text")
    page.get_by_label("Key", exact=True).fill("eu-7")
    page.get_by_label("Value", exact=True).fill('{"total": 12.5}')
    page.get_by_role("button", name="Produce").click()
    page.wait_for_load_state("load")
    browsing.go("/messages?topic=orders")
    page.get_by_label("Expression").fill('key startswith "eu-" and value.total > 12')
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_role("heading", name="1 record found").wait_for()
    assert "12.5" in browsing.text()


def test_the_live_tail_shows_a_record_that_is_written_now(browsing: Browsing) -> None:
    browsing.go("/messages/+tail?topic=orders")
    browsing.page.locator("[data-state=on]").first.wait_for()
    with Producer({"bootstrap.servers": browsing.broker.bootstrap}) as producer:
        producer.send("orders", b"written while you look")
    browsing.page.get_by_text("written while you look").first.wait_for()


def test_the_overview_stays_current(browsing: Browsing) -> None:
    page = browsing.page
    browsing.go("/")
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_role("heading", name="Disks").wait_for()
    with Producer({"bootstrap.servers": browsing.broker.bootstrap}) as producer:
        for _ in range(500):
            producer.send("orders", b"x")
    page.locator("[data-part=busy]").get_by_role("link", name="orders").wait_for()
    assert not browsing.problems(), "also with the live parts"


def test_everything_is_reached_by_keys(browsing: Browsing) -> None:
    page = browsing.page
    browsing.go("/topics")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "words"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid", "one sees where one is"
    page.keyboard.type("orders g t ?")  # text, while one types
    assert page.input_value("#words") == "orders g t ?"
    page.fill("#words", "orders")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?q=orders*")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_url("**/brokers")


def test_every_stop_of_the_tab_key_is_seen(browsing: Browsing) -> None:
    page = browsing.page
    browsing.go("/topics/orders")
    stops = []
    for _ in range(40):
        page.keyboard.press("Tab")
        stop = page.evaluate(
            "[document.activeElement.tagName, document.activeElement.textContent.trim(),"
            f" {'getComputedStyle(document.activeElement).outlineStyle'}]"
        )
        if stop[0] == "BODY":
            break
        stops.append(stop)
    assert len(stops) > 15
    assert {outline for _, _, outline in stops} == {"solid"}


def test_a_theme_is_kept_from_page_to_page(browsing: Browsing) -> None:
    page = browsing.page
    browsing.go("/settings")
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    page.reload()
    page.get_by_role("button", name="Dark theme").click()
    browsing.go("/topics")
    assert page.get_attribute("html", "data-theme") == "dark"
    page.get_by_role("button", name="Light theme").click()
    browsing.go("/settings")
    page.get_by_label("Theme", exact=True).select_option("auto")
    page.get_by_role("button", name="Use it").click()
    page.locator("html[data-theme=auto]").wait_for(state="attached")


def test_a_narrow_page_has_its_navigation_behind_a_button(browsing: Browsing) -> None:
    page = browsing.page
    page.set_viewport_size(NARROW)
    browsing.go("/topics")
    button = page.get_by_role("button", name="Menu")
    assert button.get_attribute("aria-expanded") == "false"
    assert not page.get_by_role("link", name="Brokers").is_visible()
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    assert not browsing.problems()
    page.set_viewport_size(NARROW)
    button.click()
    page.get_by_role("link", name="Brokers").click()
    page.wait_for_url("**/brokers")


def test_pages_work_without_scripts(browsing: Browsing) -> None:
    chromium = browsing.page.context.browser
    assert chromium is not None
    context = chromium.new_context(java_script_enabled=False, viewport=NARROW)
    page = context.new_page()
    page.goto(f"{browsing.base}/topics")
    page.get_by_role("link", name="orders", exact=True).click()
    assert "Next offset" in page.inner_text("main")
    page.get_by_role("link", name="Brokers").first.click()
    assert page.inner_text("h1") == "Brokers"
    context.close()


def test_a_script_that_comes_into_a_page_is_not_run(browsing: Browsing) -> None:
    """The second wall, behind the escaping: the policy refuses what is inline."""
    browsing.go("/settings")
    browsing.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hit = 3";
            document.body.append(script);
            const image = document.createElement("div");
            image.innerHTML = '<img src="data:," onerror="window.hit=4">';
            document.body.append(image);
        }"""
    )
    assert browsing.page.evaluate("window.hit") is None
    assert any("Content Security Policy" in each for each in browsing.complaints)
    browsing.complaints.clear()
    browsing.go("/settings")
